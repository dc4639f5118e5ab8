"""Run the golden cases; ``python -m tests.golden.run`` records them again and shows what changed.

``cases.toml`` lists them: the commands to type in an empty folder, and the files whose content counts. To add a case,
add it there and run ``make golden``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.golden import reduce

HERE: Final = Path(__file__).parent
EXPECTED: Final = HERE / "expected"
ROOT: Final = HERE.parents[1]
ENVIRONMENT: Final = {"COLUMNS": "100", "BFTRAIN_NO_CACHE": "1", "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "TZ": "UTC"}


@dataclass(frozen=True)
class Case:
    """Commands in one folder, and patterns of the files to record."""

    name: str
    commands: tuple[str, ...]
    files: tuple[str, ...] = ()
    soak: bool = False

    @property
    def expected(self) -> Path:
        return EXPECTED / f"{self.name}.txt"


def load_cases() -> list[Case]:
    """Read ``cases.toml``."""
    table = tomllib.loads((HERE / "cases.toml").read_text())
    return [
        Case(name, tuple(case["commands"]), tuple(case.get("files", ())), case.get("soak", False))
        for name, case in table.items()
    ]


def record(case: Case) -> str:
    """Run a case in a temporary folder and return what is compared."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        shutil.copytree(HERE / "inputs", folder, dirs_exist_ok=True)
        shutil.copytree(ROOT / "examples", folder / "examples")
        parts = [part for command in case.commands for part in _run(command, folder)]
        for pattern in case.files:
            paths = sorted(path for path in folder.glob(pattern) if path.is_file() and path.name != "SHA256SUMS")
            parts += [f"=== no file {pattern}"] if not paths else []
            for path in paths:
                parts += [f"=== {path.relative_to(folder)}", reduce.file(path, folder)]
        return "\n".join(parts) + "\n"


def _run(command: str, folder: Path) -> list[str]:
    """Type a command and return it with its exit code and output."""
    words = shlex.split(command)
    stdin = ""
    if words[0] == "<":  # < FILE command ...: standard input
        stdin, words = (folder / words[1]).read_text(), words[2:]
    program = {"bftrain": [sys.executable, "-m", "bftrain"], "python": [sys.executable]}[words[0]]
    environment = {**os.environ, **ENVIRONMENT, "HOME": str(folder)}
    environment.pop("BFTRAIN_QUICK", None)
    done = subprocess.run(
        [*program, *words[1:]], cwd=folder, input=stdin, capture_output=True, text=True, env=environment, check=False
    )
    ending = f" -> exit code {done.returncode}" if done.returncode else ""
    parts = [f"$ {command}{ending}"]
    for name, output in (("", done.stdout), ("stderr: ", done.stderr)):
        parts += [name + line for line in reduce.output(output, folder).splitlines()]
    return parts


def main() -> None:
    """Record the named cases, or all of them, and show the difference to what git has."""
    wanted = set(sys.argv[1:])
    cases = [case for case in load_cases() if not wanted or case.name in wanted]
    EXPECTED.mkdir(exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for case, content in zip(cases, pool.map(record, cases), strict=True):
            case.expected.write_text(content)
    if not wanted:
        for file in set(EXPECTED.glob("*.txt")) - {case.expected for case in cases}:
            file.unlink()
    subprocess.run(["git", "--no-pager", "diff", "--", "tests/golden"], cwd=ROOT, check=False)


if __name__ == "__main__":
    main()
