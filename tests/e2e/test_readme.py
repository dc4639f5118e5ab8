"""What the README shows of make and of the demo is so; tests/e2e/test_pages_run.py types its other commands."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_output_shown_is_what_the_demo_prints(tmp_path: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "bftrain", "demo", "-o", tmp_path / "demo"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    # Of the output some lines are shown, in their order
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = [line for line in shown.splitlines() if line != "..."]
    assert len(lines) >= 7
    places = [printed.index(line) for line in lines]
    assert places == sorted(places)
