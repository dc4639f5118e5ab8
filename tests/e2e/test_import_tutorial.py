"""The tutorial from sacct to a report, typed block by block on a terminal: what it shows is what is seen."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

from tests.helpers.program import ANSI, shell_on_terminal

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "from-sacct-to-report.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
LEFT_OUT = "..."


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def appears(shown: list[str], seen: list[str]) -> bool:
    """Whether all that is shown is seen, in order, and without a gap where none is marked."""
    begin = 0
    for part in "\n".join(shown).split(f"\n{LEFT_OUT}\n"):
        wanted = part.split("\n")
        places = (at for at in range(begin, len(seen)) if seen[at : at + len(wanted)] == wanted)
        place = next(places, None)
        if place is None:
            return False
        begin = place + len(wanted)
    return True


def test_the_tutorial_runs_and_shows_what_is_seen(tmp_path: Path) -> None:
    shown = 0
    for (kind, block), (following, output) in pairwise([*BLOCKS, ("", "")]):
        if kind != "sh":
            continue
        ended = shell_on_terminal(block, cwd=tmp_path)
        assert ended.code == 0, f"{block}\n{ended.out}"
        if following == "text":
            seen = lines_of(ANSI.sub("", ended.out))
            assert appears(lines_of(output), seen), f"{output}\n--- but seen was\n" + "\n".join(seen)
            shown += 1
    assert shown == len([kind for kind, _ in BLOCKS if kind == "text"]) - 1  # the command for a cluster is shown only
    assert "<html" in (tmp_path / "result" / "report.html").read_text()
    assert json.loads((tmp_path / "result" / "summary.json").read_text())


def test_what_is_shown_is_compared_line_by_line() -> None:
    assert appears(["a", "b"], ["x", "a", "b", "c"])
    assert appears(["a", LEFT_OUT, "c"], ["x", "a", "b", "c"])
    assert not appears(["a", "c"], ["x", "a", "b", "c"])
    assert not appears(["c", LEFT_OUT, "a"], ["x", "a", "b", "c"])
