"""Replays of logs of GPUs or cores: terminal, summary and page speak of these, and tasks stay on few nodes."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace as replace_struct
from rich.console import Console

from bftrain import BadInput, EventLog, NodeState, ReplaySettings
from bftrain_replay import replay_folder
from bftrain_replay.commands import compare
from bftrain_replay.commands.replay_result import in_words
from bftrain_replay.comparing.compared_run import side_of_folder
from bftrain_replay.drawing.html_page import HtmlPage, HtmlTable, HtmlText, PageSection
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting.unit_words import in_unit
from bftrain_replay.study import ReplayStudy, study
from tests.helpers.transitions import log_from_transitions
from tests.unit.replay.cases import task

NODE_WORD = re.compile(r"(?<![\w/.-])[Nn]odes?(?:-hours?|-time)?(?![\w/-])")


def gpu_log(unit: str = "gpu") -> EventLog:
    """Three nodes of four GPUs: all idle, then those of n2 leave one by one."""
    names = [f"n{node}/{unit}{slot}" for node in (1, 2, 3) for slot in range(4)]
    changes = [(1.6e9, name, NodeState.IDLE) for name in names]
    changes += [(1.6e9 + 1000.0 * (slot + 1), f"n2/{unit}{slot}", NodeState.BUSY) for slot in range(4)]
    log = log_from_transitions(changes, end_s=1.6e9 + 7200.0)
    return replace(log, provenance=replace_struct(log.provenance, unit=unit))


def replayed(unit: str = "gpu") -> ReplayStudy:
    tasks = [task(name, rate=(1.0, 2.0, 3.0, 4.0), work_samples=1e6, user=name) for name in ("big", "small")]
    return study(gpu_log(unit), tasks, ReplaySettings(), baseline="equal-share")


@pytest.mark.parametrize(("unit", "word"), [("gpu", "GPU"), ("core", "core")])
def test_a_replay_speaks_of_what_is_counted(tmp_path: Path, unit: str, word: str) -> None:
    done = replayed(unit)
    console = Console(file=io.StringIO(), width=120)
    console.print(in_words(done, "log.npz"))
    printed = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert f"idle {word}-hours" in printed
    replay_folder.write(done, tmp_path / "out", InputSource(log="log.npz"))
    page = (tmp_path / "out" / "report.html").read_text()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["unit"] == unit
    assert f"{word}-hours" in summary["headline"]["sentence"]
    text = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    data = page.split('id="page-data">')[1].split("</script>")[0]
    assert f"{word}-hours" in text
    said = {"terminal": printed, "headline": summary["headline"]["sentence"], "page": text}
    assert {where: NODE_WORD.findall(each) for where, each in said.items()} == {where: [] for where in said}
    assert re.findall(r'"(?:title|thing|labels)":"?[^"]*\bnodes?\b', data) == []


def test_tasks_begin_on_the_gpus_of_one_node_each() -> None:
    allocations = replayed().result.allocations
    assert allocations is not None
    held = allocations.table()
    rows = zip(held.from_s.tolist(), held.node.tolist(), held.task.tolist(), strict=True)
    begun = {(held.tasks[of], held.nodes[node].partition("/")[0]) for from_s, node, of in rows if from_s == 0.0}
    assert len(begun) == len({name for name, _ in begun}) == 2


def test_tags_and_names_stay_as_they_are() -> None:
    table = HtmlTable(label="nodes", headings=("node", "node-hours"), rows=[("node7", "3 nodes")], css="node")
    lead = HtmlText('<b class="node">2 nodes</b>')
    page = HtmlPage(title="Idle nodes", lead=lead, sections=[PageSection(heading="Nodes", parts=[table])])
    assert in_unit(page, "node") is page
    said = in_unit(page, "gpu")
    assert (said.title, said.lead) == ("Idle GPUs", '<b class="node">2 GPUs</b>')
    found = said.sections[0].parts[0]
    assert isinstance(found, HtmlTable)
    assert (found.headings, found.rows, found.css) == (("GPU", "GPU-hours"), (("node7", "3 GPUs"),), "node")


def test_a_comparison_speaks_of_what_is_counted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        replay_folder.write(replayed(), tmp_path / name, InputSource(log="log.npz"))
    page = tmp_path / "compared.html"
    ended = CliRunner().invoke(compare.command, [str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(page)])
    assert ended.exit_code == 0, ended.output
    assert "GPU-hours" in ended.output
    assert NODE_WORD.findall(ended.output) == []
    text = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", page.read_text(), flags=re.DOTALL)
    assert "GPU-hours" in text
    assert NODE_WORD.findall(text) == []


def test_a_summary_of_an_unknown_unit_is_refused(tmp_path: Path) -> None:
    replay_folder.write(replayed(), tmp_path / "a", InputSource(log="log.npz"))
    file = tmp_path / "a" / "summary.json"
    file.write_text(file.read_text().replace('"unit": "gpu"', '"unit": "rack"'))
    with pytest.raises(BadInput, match="the unit is none of node, gpu, core: 'rack'"):
        side_of_folder("a", tmp_path / "a")
