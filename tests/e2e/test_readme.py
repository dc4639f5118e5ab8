"""Every command in the README runs as it stands there, one after the other, as a reader would type them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_readme_commands_run(tmp_path: Path) -> None:
    typed = [block for block in BLOCKS if not block.startswith("make ")]
    assert len(typed) == 3, "one block for each of the three uses"
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    ours = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["/bin/bash", "-eu", "-c", "\n".join(typed)],
        cwd=tmp_path,
        # Without our own bin: it is the README that must say how the command is found
        env=os.environ
        | {"PATH": os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part != ours)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert (tmp_path / "result" / "summary.json").is_file()
    assert (tmp_path / "mine" / "summary.json").is_file()
    figures = json.loads((tmp_path / "result" / "summary.json").read_text())
    assert figures["tasks_finished"] < figures["tasks"], "with too few tasks all solvers harvest the same"
    assert figures["efficiency"] > figures["baseline"]["efficiency"] + 0.05


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
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
