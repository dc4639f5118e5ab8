"""Texts have the same number in all batches, and words for nothing have none."""

from __future__ import annotations

import pytest

from bftrain_datasets.job_tables import numbered_texts
from bftrain_datasets.job_tables.numbered_texts import NumberedTexts


def test_a_text_keeps_its_number() -> None:
    numbered = NumberedTexts({"", "none"})
    first = numbered.texts
    assert numbered.of(["n1", "n2", "n1", "None", " "]).tolist() == [0, 1, 0, -1, -1]
    assert numbered.of(["n3", "n2", ""]).tolist() == [2, 1, -1]
    assert first is numbered.texts == ["n1", "n2", "n3"]


def test_too_many_letters_begin_a_new_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_texts, "MOST_LETTERS", 5)
    numbered = NumberedTexts(())
    first = numbered.texts
    assert numbered.of(["one", "two"]).tolist() == [0, 1]
    assert numbered.of(["two", "one"]).tolist() == [0, 1]
    assert (first, numbered.texts) == (["one", "two"], ["two", "one"])
