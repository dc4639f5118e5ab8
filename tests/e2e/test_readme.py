"""What the README shows of the demo is so; tests/e2e/test_pages_run.py types its other commands."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRINTED = ROOT / "tests" / "golden" / "expected" / "demo.txt"


def test_the_output_shown_is_what_the_demo_prints() -> None:
    # Some lines are shown, in their order
    printed = [line.split() for line in PRINTED.read_text().splitlines()]
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [line.split() for line in shown.splitlines() if line != "..."]
    assert len(lines) >= 7
    places = [printed.index(line) for line in lines]
    assert places == sorted(places)
