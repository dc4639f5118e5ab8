"""What the README shows of make and of the demo is so; tests/e2e/test_pages_run.py types its other commands."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_output_shown_is_what_the_demo_prints(tmp_path: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "bftrain", "demo", "-o", tmp_path / "demo"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    # Times differ from run to run, and the folder's name is the reader's
    steady = [line for line in done.stdout.splitlines() if line and "time, " not in line and "report" not in line]
    assert len(steady) >= 7
    readme = (ROOT / "README.md").read_text()
    assert [line for line in steady if line.rstrip() not in readme] == []


def test_readme_names_the_make_targets_that_exist() -> None:
    (makes,) = [block for block in BLOCKS if block.startswith("make ")]
    targets = re.findall(r"^make ([a-z]+)", makes, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["demo", "test", "docs"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
