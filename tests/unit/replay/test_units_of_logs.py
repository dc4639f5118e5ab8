"""Replays of logs of GPUs or cores: terminal, summary and page speak of these, and tasks stay on few nodes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

import bftrain
from bftrain import BadInput, EventLog, NodeState, ReplaySettings
from tests.helpers.in_process import CommandLine
from tests.helpers.transitions import log_from_transitions
from tests.unit.replay.cases import ReplayOutcome, task

NODE_WORD = re.compile(r"(?<![\w/.-])[Nn]odes?(?:-hours?|-time)?(?![\w/-])")


def gpu_log(unit: str = "gpu") -> EventLog:
    """Three nodes of four GPUs: all idle, then those of n2 leave one by one."""
    names = [f"n{node}/{unit}{slot}" for node in (1, 2, 3) for slot in range(4)]
    changes = [(1.6e9, name, NodeState.IDLE) for name in names]
    changes += [(1.6e9 + 1000.0 * (slot + 1), f"n2/{unit}{slot}", NodeState.BUSY) for slot in range(4)]
    log = log_from_transitions(changes, end_s=1.6e9 + 7200.0)
    return replace(log, provenance=replace_struct(log.provenance, unit=unit))


def replayed(unit: str = "gpu") -> ReplayOutcome:
    tasks = [task(name, rate=(1.0, 2.0, 3.0, 4.0), work_samples=1e6, user=name) for name in ("big", "small")]
    return bftrain.replay(gpu_log(unit), tasks, ReplaySettings(), baseline="equal-share")


@pytest.mark.parametrize(("unit", "word"), [("gpu", "GPU"), ("core", "core")])
def test_a_replay_speaks_of_what_is_counted(tmp_path: Path, unit: str, word: str) -> None:
    done = replayed(unit)
    done.write(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["unit"] == unit
    assert f"{word}-hours" in summary["headline"]["sentence"]
    text = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    data = page.split('id="page-data">')[1].split("</script>")[0]
    assert f"{word}-hours" in text
    said = {"headline": summary["headline"]["sentence"], "page": text.rpartition("Configuration")[0]}
    assert {where: NODE_WORD.findall(each) for where, each in said.items()} == {where: [] for where in said}
    assert re.findall(r'"(?:title|thing|labels)":"?[^"]*\bnodes?\b', data) == []


def test_tasks_begin_on_the_gpus_of_one_node_each() -> None:
    allocations = replayed().result.allocations
    assert allocations is not None
    held = allocations.rows().table()
    rows = zip(held.from_s.tolist(), held.node.tolist(), held.task.tolist(), strict=True)
    begun = {(held.tasks[of], held.nodes[node].partition("/")[0]) for from_s, node, of in rows if from_s == 0.0}
    assert len(begun) == len({name for name, _ in begun}) == 2


def test_a_comparison_speaks_of_what_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command = CommandLine(monkeypatch, capfd)
    for name in ("a", "b"):
        replayed().write(tmp_path / name)
    page = tmp_path / "compared.html"
    ended = command("compare", tmp_path / "a", tmp_path / "b", "-o", page)
    assert ended.code == 0, ended.err
    assert "GPU-hours" in ended.out
    assert NODE_WORD.findall(ended.out) == []
    text = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", page.read_text(), flags=re.DOTALL)
    assert "GPU-hours" in text
    assert NODE_WORD.findall(text.rpartition("How they were made")[0]) == []  # the setting is called nodes


def test_an_assessment_speaks_of_what_is_counted(tmp_path: Path) -> None:
    bftrain.assess(gpu_log()).write(tmp_path / "out")
    page = (tmp_path / "out" / "assess.html").read_text()
    labels = re.findall(r'aria-label="([^"]*)"', page)
    text = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert "GPU-hours" in text
    assert NODE_WORD.findall(" ".join([*labels, text.partition("Not answered here")[0]])) == []


def test_a_summary_of_an_unknown_unit_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        replayed().write(tmp_path / name)
    file = tmp_path / "a" / "summary.json"
    file.write_text(file.read_text().replace('"unit": "gpu"', '"unit": "rack"'))
    with pytest.raises(BadInput, match="the unit must be one of node, gpu, core, not 'rack'"):
        bftrain.compare(tmp_path / "a", tmp_path / "b")
