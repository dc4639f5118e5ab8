"""The tutorial on objectives, typed block by block as a reader would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "your-objective.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def typed(block: str, where: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["/bin/bash", "-eu", "-c", block],
        cwd=where,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_tutorial_runs(tmp_path: Path) -> None:
    for block in BLOCKS:
        done = typed(block, tmp_path)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    for folder in ("plain", "thrifty"):
        assert json.loads((tmp_path / folder / "summary.json").read_text())

    def sizes(options: str) -> dict[str, int]:
        done = typed(f"bftrain solve problem.json --json {options}", tmp_path)
        found: dict[str, int] = json.loads(done.stdout)["sizes"]
        return found

    # What the text says of the two answers, and of the third
    assert sum(sizes("").values()) == 60
    assert sizes("--objective thrifty.py:thrifty") == {"resnet": 32, "bert": 16}
    calm = sizes("--objective calm.py:Calm --solver highs")
    assert calm == {"resnet": 32, "bert": 16}


def test_the_message_shown_is_the_one_that_comes(tmp_path: Path) -> None:
    typed(BLOCKS[1], tmp_path)  # writes the problem, and fails for want of the metric
    (tmp_path / "broken.py").write_text("def broken(task, sizes):\n    return sizes * float('nan')\n")
    done = typed("bftrain solve problem.json --objective broken.py:broken", tmp_path)
    assert done.returncode == 3
    assert done.stderr.strip() in PAGE
