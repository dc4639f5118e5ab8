"""bftrain train and bftrain check, with the shipped examples and with scripts that lack something."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.helpers.pages import ROOT, page
from tests.helpers.processes import alive, descendants
from tests.helpers.program import PROGRAM, bftrain, environment, shell

pytestmark = [pytest.mark.torch, pytest.mark.apart]

EXAMPLES = Path(__file__).parents[2] / "examples" / "training"

LOOP = """
import time, torch
from bftrain_elastic import State, report, run
torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
def train(state):
    {begin}
    while True:
        loss = (state.parallel()(torch.ones(1, 1)) ** 2).sum()
        {move}
        time.sleep(0.005)
        {report}
        {commit}
run(State(model=model, position=0, seen=0), train)
"""
READY = {
    "begin": "pass",
    "move": "[p.data.mul_(0.99) for p in model.parameters()]",
    "report": "report(samples=1, loss=loss)",
    "commit": "state.commit()",
}


@pytest.mark.parametrize("name", ["cnn.py", pytest.param("transformer.py", marks=pytest.mark.soak)])
def test_an_example_trains_through_growing_and_shrinking(name: str) -> None:
    for slower in (1, 4, 12):  # a machine that is busy with others needs longer
        script, limit = f"1@0,3@{1.5 * slower},2@{3 * slower}", f"{5 * slower}"
        done = bftrain("train", EXAMPLES / name, "--nodes", "1:3", "--script", script, "--for", limit, "--json")
        assert done.code == 0, done.err
        result = json.loads(done.out)
        if set(result["speed"]) == {"1", "2", "3"}:
            break
    assert set(result["speed"]) == {"1", "2", "3"}, done.err
    assert all(rate > 0 for rate in result["speed"].values())
    assert {kind: len(costs) for kind, costs in result["cost_s"].items()} == {"start": 1, "grow": 1, "shrink": 1}
    assert result["loss"]["last"] < result["loss"]["first"]
    assert result["state"]["bytes"] > 0
    assert "3 nodes, from step" in done.err


def test_a_script_that_ends_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    arguments = ("train", EXAMPLES / "cnn.py", "--nodes", "1:1", "--folder", folder, "--script", "1@0")
    done = bftrain(*arguments, "--", "--steps", "15")
    assert done.code == 0, done.err
    assert done.out.startswith("done after 15 steps")
    again = bftrain(*arguments, "--", "--steps", "20")
    assert "1 node, from step 15 on" in again.err


def test_a_ddp_script_is_sent_to_the_change_that_the_docs_show(tmp_path: Path) -> None:
    (diff,) = [block.text for block in page(ROOT / "docs" / "how-to" / "elastic.md").blocks if block.kind == "diff"]
    versions = {"ddp.py": " -", "elastic.py": " +"}
    for name, signs in versions.items():
        lines = [line[1:] for line in diff.splitlines() if line[:1] in signs]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    done = bftrain("check", tmp_path / "ddp.py")
    assert done.code == 3
    assert "it forms a process group of its own" in done.out
    assert "'From a DDP script' in docs/how-to/elastic.md" in " ".join(done.out.split())
    assert "its last words" not in done.err
    done = bftrain("check", tmp_path / "elastic.py", "--json")
    assert done.code == 0, done.err
    assert [one["name"] for one in json.loads(done.out) if one["ok"]] == [
        "reports",
        "commits",
        "resizes",
        "keeps its progress",
        "divides the work",
        "workers agree",
        "continues to learn",
    ]


ALONE = """
import time
from bftrain_elastic import report
print("hello from the script", flush=True)
for number in range(1, 100):
    {step}
    time.sleep(0.01)
"""


def test_with_v_the_scripts_own_output_is_shown(tmp_path: Path, no_torch: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(ALONE.format(step="report(samples=10, loss=1 / number)"))
    done = bftrain("train", script, "--nodes", "1:1", "--launcher", "process", "-v", PYTHONPATH=no_torch)
    assert done.code == 0, done.err
    assert "node1-0: hello from the script" in done.err
    assert done.out.startswith("done after 99 steps")
    quiet = bftrain(
        "train", script, "--nodes", "1:1", "--launcher", "process", "--for", "0.5", "-q", "--json", PYTHONPATH=no_torch
    )
    assert all("not preloaded" in line for line in quiet.err.splitlines()), "and that is so in this test only"
    assert json.loads(quiet.out)["ended"] == "stopped"


def test_a_program_that_is_no_python_script_runs(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\necho hello from the program\nsleep 60\n")
    script.chmod(0o755)
    done = bftrain("train", script, "--nodes", "1:2", "--launcher", "process", "--for", "3", "-v")
    assert "node1-0: hello from the program" in done.err
    assert "no step was reported" in done.err


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("pass", "never called bftrain_elastic.run (put the training into run(state, train)"),
        pytest.param(
            "report(samples=10)", "trains alone: its script never called bftrain_elastic.run", marks=pytest.mark.soak
        ),
        ("1 / 0", "it failed: ZeroDivisionError: division by zero (fix this error, and run the script alone"),
        ("time.sleep(60)", "no step was reported (call report("),
    ],
)
def test_a_script_that_cannot_be_tried_is_refused_with_the_reason(
    tmp_path: Path, no_torch: str, step: str, words: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(ALONE.format(step=step))
    done = bftrain("train", script, "--nodes", "1:2", "--for", "4", PYTHONPATH=no_torch)
    assert (done.code, done.out) == (3, "")
    assert f"script.py: {words}" in done.err or words in done.err
    assert "runpy" not in done.err
    assert "prefork" not in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_stopped_it_reports_what_was_seen_and_leaves_nothing(tmp_path: Path, no_torch: str, number: int) -> None:
    script, place = tmp_path / "script.py", tmp_path / "tmp"
    script.write_text(ALONE.format(step="report(samples=10, loss=1 / number)").replace("100", "1000000"))
    place.mkdir()
    command = [PROGRAM, "train", script, "--nodes", "1:2", "--launcher", "process", "--script", "2@0"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=str(place), PYTHONPATH=no_torch),
    ) as running:
        try:
            assert running.stderr is not None
            for line in running.stderr:
                if "samples/s" in line:
                    break
            below = set(descendants(running.pid))
            running.send_signal(number)
            out, err = running.communicate(timeout=180)
        finally:
            running.kill()  # otherwise the end of the block would wait for one that hangs
    assert running.returncode == 130
    assert out.startswith("stopped after ")
    assert err.rstrip().endswith("bftrain: interrupted; the figures cover the completed part")
    assert alive(below) == set()
    assert list(place.glob("bftrain*")) == []


def test_a_closed_pipe_ends_it_without_a_trace(tmp_path: Path, no_torch: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(ALONE.format(step="report(samples=10, loss=1 / number)"))
    (tmp_path / "tmp").mkdir()
    command = f"bftrain train {script} --nodes 1:1 --launcher process 2>&1 | head -n 1"
    done = shell(command, TMPDIR=str(tmp_path / "tmp"), PYTHONPATH=no_torch)
    assert (done.code, done.out) == (0, "starting an agent ...\n")
    assert list((tmp_path / "tmp").glob("bftrain*")) == []


@pytest.mark.horovod
def test_a_script_of_another_kind_is_sent_to_its_launcher() -> None:
    native = bftrain("train", EXAMPLES / "cnn_horovod.py", "--nodes", "1:1", "--for", "20")
    assert native.code == 3
    assert "it is for Horovod: --launcher horovod" in native.err


@pytest.mark.parametrize(
    ("lacking", "missing", "words"),
    [
        ({"commit": "pass"}, {"commits", "resizes"}, "call state.commit()"),
        ({"begin": "step = 0", "report": "step += 1; report(1, loss, step=step)"}, {"keeps its progress"}, "not at 0"),
        pytest.param(
            {"commit": "state.workers == 1 or state.rank or state.commit(); state.workers == 2 or state.commit()"},
            {"keeps going", "resizes"},
            "rank 0 waits in state.commit(), which every rank must call",
            marks=pytest.mark.soak,  # it takes a stall limit of half a minute
        ),
    ],
)
def test_what_a_script_lacks_is_said(tmp_path: Path, lacking: dict[str, str], missing: set[str], words: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(LOOP.format(**READY | lacking))
    patience = "60" if "keeps going" in missing else "4"  # a hang is noticed after half a minute
    done = bftrain("check", script, "--patience", patience, "--json")
    assert done.code == 3
    found = json.loads(done.out)
    assert {one["name"] for one in found if not one["ok"]} == missing
    assert any(words in one["fix"] + one["detail"] for one in found if not one["ok"])
