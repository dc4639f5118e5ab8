"""``bftrain explain``: meanings as the glossary has them, and values as the replay's own files have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bftrain_replay.results.glossary import GLOSSARY, meaning_of
from tests.helpers.in_process import CommandLine


def test_the_command_explains_in_words_and_as_json(bftrain: CommandLine) -> None:
    words = bftrain("explain", "rho", "efficiency U")
    assert words.code == 0
    assert words.out.splitlines()[1].strip() == meaning_of("rho")
    assert "= harvested / dedicated_samples" in words.out
    every = json.loads(bftrain("explain", "--json").out)
    assert [row["key"] for row in every] == [entry.key for entry in GLOSSARY]
    wrong = bftrain("explain", "coverag")
    assert (wrong.code, wrong.err) == (3, "bftrain: no figure is called 'coverag' (did you mean 'coverage'?)\n")


def test_it_says_what_a_figure_is_in_a_replay(bftrain: CommandLine, tmp_path: Path) -> None:
    assert bftrain("demo", "-o", tmp_path / "demo", "--quick").code == 0
    folder = next(path.parent for path in sorted((tmp_path / "demo").rglob("summary.json")))
    summary: Mapping[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    shown = bftrain("explain", "coverage", "rho", "rounds", "--of", folder).out
    assert f"here: idle node-time used {100 * summary['used_node_h'] / summary['idle_node_h']:.1f} %" in shown
    assert f"here: rho, max {summary['rho']['max']:.3g}" in shown
    assert shown.count("here: rounds") == 0
