"""bftrain train and bftrain elastic check, with the shipped examples and with scripts that lack something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.program import bftrain

pytestmark = pytest.mark.torch

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
run(State(model=model, position=0), train)
"""
READY = {
    "begin": "pass",
    "move": "[p.data.mul_(0.99) for p in model.parameters()]",
    "report": "report(samples=1, loss=loss)",
    "commit": "state.commit()",
}


@pytest.mark.parametrize("name", ["cnn.py", "transformer.py"])
def test_an_example_trains_through_growing_and_shrinking(name: str) -> None:
    script = "1@0,3@1.5,2@3"
    done = bftrain("train", EXAMPLES / name, "--nodes", "1:3", "--script", script, "--for", "5", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert set(result["speed"]) == {"1", "2", "3"}
    assert all(rate > 0 for rate in result["speed"].values())
    assert {kind: len(costs) for kind, costs in result["cost_s"].items()} == {"start": 1, "grow": 1, "shrink": 1}
    assert result["loss"]["last"] < result["loss"]["first"]
    assert "3 nodes, from step" in done.err


def test_a_script_that_ends_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    arguments = ("train", EXAMPLES / "cnn.py", "--nodes", "1:2", "--folder", folder, "--script", "2@0")
    done = bftrain(*arguments, "--", "--steps", "15")
    assert done.code == 0, done.err
    assert done.out.startswith("done after 15 steps")
    again = bftrain(*arguments, "--", "--steps", "20")
    assert "2 nodes, from step 15 on" in again.err


def test_an_example_is_ready() -> None:
    done = bftrain("elastic", "check", EXAMPLES / "transformer.py", "--json")
    assert done.code == 0, done.err
    assert [one["name"] for one in json.loads(done.out) if one["ok"]] == [
        "reports",
        "commits",
        "resizes",
        "keeps its progress",
        "goes on learning",
    ]


@pytest.mark.parametrize(
    ("lacking", "missing", "words"),
    [
        ({"report": "pass"}, {"reports", "resizes"}, "call report("),
        ({"commit": "pass"}, {"commits", "resizes"}, "call state.commit()"),
        ({"begin": "step = 0", "report": "step += 1; report(1, loss, step=step)"}, {"keeps its progress"}, "not at 0"),
        ({"move": "[p.data.mul_(1.05) for p in model.parameters()]"}, {"goes on learning"}, "in the state"),
        ({"begin": "raise ValueError('no data here')"}, {"runs", "reports", "commits", "resizes"}, "no data here"),
    ],
)
def test_what_a_script_lacks_is_said(tmp_path: Path, lacking: dict[str, str], missing: set[str], words: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(LOOP.format(**READY | lacking))
    done = bftrain("elastic", "check", script, "--patience", "4", "--json")
    assert done.code == 3
    found = json.loads(done.out)
    assert {one["name"] for one in found if not one["ok"]} == missing
    assert any(words in one["fix"] + one["detail"] for one in found if not one["ok"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--nodes", "4:1"), 2, "is not MIN:MAX"),
        (("--nodes", "1:2", "--script", "1@0,3@1"), 2, "3 is outside --nodes 1:2"),
        (("--script", "1@5"), 3, "second 0"),
        (("--script", "soon"), 3, "not SIZE@SECONDS"),
        (("--backend", "nativ"), 3, "did you mean 'native'?"),
    ],
)
def test_what_cannot_be_asked_for_is_said_at_once(arguments: tuple[str, ...], code: int, words: str) -> None:
    done = bftrain("train", EXAMPLES / "cnn.py", *arguments)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
