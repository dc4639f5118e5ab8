"""The glossary explains every figure that people see, and is the one source of commands, pages and documents."""

from __future__ import annotations

import pytest

from bftrain import UnknownName
from bftrain.errors import fold
from bftrain_replay.reporting.losses import CAUSES
from bftrain_replay.results.glossary import GLOSSARY, entry_of, find_entry
from bftrain_replay.results.summary_figures import FIGURES
from tests.helpers.pages import ROOT, anchors
from tools.glossary_page import glossary_page

LABELS = {figure.label: figure.name for figure in FIGURES}


def test_every_figure_that_people_see_is_explained() -> None:
    assert [figure.name for figure in FIGURES if entry_of(figure.name) is None] == []
    assert all(figure.about.endswith(".") and figure.about[0].isupper() for figure in FIGURES)


def test_an_entry_is_found_by_key_label_part_and_other_names() -> None:
    names = {fold(name): entry.key for entry in GLOSSARY for name in (entry.key, *entry.also)}
    assert len(names) == sum(len({*map(fold, (entry.key, *entry.also))}) for entry in GLOSSARY), "a name is taken twice"
    for figure in FIGURES:
        assert find_entry(figure.label, LABELS) is find_entry(figure.name, LABELS) is entry_of(figure.name)
    assert find_entry("u", LABELS).key == "efficiency"
    assert find_entry("Ceiling", LABELS).key == "ceiling_efficiency"
    with pytest.raises(UnknownName, match=r"no figure is called 'xyz' \(bftrain explain lists all\)"):
        find_entry("xyz", {})
    with pytest.raises(UnknownName, match=r"no figure is called 'roh' \(did you mean 'rho'\?\)"):
        find_entry("roh", LABELS)


def test_where_more_is_said_there_is_a_page_and_a_section() -> None:
    for entry in GLOSSARY:
        file, _, section = entry.page.partition("#")
        assert not section or section in anchors((ROOT / file).read_text(encoding="utf-8")), entry.key


def test_causes_of_losses_have_the_words_of_the_glossary() -> None:
    explained = {entry.meaning for entry in GLOSSARY}
    assert {cause.meaning for cause in CAUSES} <= explained
    unused = {entry.key for entry in GLOSSARY if entry.key.startswith(("unused.", "lost."))}
    assert unused == {f"{'lost' if cause.lost else 'unused'}.{cause.key}" for cause in CAUSES}


def test_the_page_of_the_documents_is_made_from_it() -> None:
    assert (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8") == glossary_page()
