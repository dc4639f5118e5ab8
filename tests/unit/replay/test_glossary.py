"""The glossary explains every figure that people see, and is the one source of commands, pages and documents."""

from __future__ import annotations

from tests.helpers.pages import ROOT
from tools.glossary_page import glossary_page


def test_the_page_of_the_documents_is_made_from_it() -> None:
    assert (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8") == glossary_page()
