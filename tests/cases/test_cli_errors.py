"""Wrong usage and wrong input of all commands: the exit code, the words that matter, and that no file is written.

``cli/COMMAND.toml`` lists the cases: a ``command`` to type, its ``exit`` code (default: 3, bad input), words of the
``error``, and optionally ``files`` (name = text) and ``stdin``. INPUTS names the files that every case can use.
"""

from __future__ import annotations

import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.every_command import prepare
from tests.helpers.in_process import CommandLine

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['command']} {case.get('stdin', '')}")
    for path in sorted((HERE / "cli").glob("*.toml"))
    for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]
]
BAD_INPUT = 3
CURVE = "curve = { nodes = [1], rate = [1.0] }"
INPUTS = {  # besides log.npz, tasks.toml, jobs.sacct, jobs.swf, sweep.toml, problem.json, the replays one and two ...
    "gang.toml": f'[[task]]\nname = "a"\nmax_nodes = 1\nwork_samples = 9\n{CURVE}\n',
    "lost.toml": '[[task]]\nname = "lost"\nmax_nodes = 1\ncurves = { tpu = { nodes = [1], rate = [1.0] } }\n',
    "kinds.toml": 'v100 = "n[1-4]"\nk80 = "n[5-8]"\n',
    "shares.toml": "[entities]\nann = 3\n",
    "jobs.csv": "job_id,arrival_s,duration_s,gpus\n0,130,100,1\n1,396,50,4\n",
    "mine.py": (
        "class Shortest: ...\n\n\ndef nothing(): ...\n\n\ndef five():\n    return 5\n\n\ndef green(task, sizes): ...\n"
    ),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all inputs; a case runs in a copy."""
    folder = tmp_path_factory.mktemp("inputs") / "folder"
    (folder / "empty").mkdir(parents=True)
    prepare(folder)
    shutil.copy(ROOT / "examples" / "problems" / "kinds.json", folder)
    for name, text in INPUTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_rejected_in_words(
    bftrain: CommandLine, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    folder = shutil.copytree(inputs, tmp_path / "folder")
    monkeypatch.chdir(folder)
    for name, text in case.get("files", {}).items():
        Path(name).write_text(text, encoding="utf-8")
    if "journal.db" in case["command"]:
        assert bftrain("decide", "events.jsonl", "--journal", "journal.db").code == 0
    before = sorted(folder.rglob("*"))
    ended = bftrain(*shlex.split(case["command"]), stdin=case.get("stdin", ""))
    assert (ended.code, case["error"] in ended.err) == (case.get("exit", BAD_INPUT), True), ended.err
    assert (ended.out, "Traceback" in ended.err) == ("", False)
    assert sorted(folder.rglob("*")) == before
