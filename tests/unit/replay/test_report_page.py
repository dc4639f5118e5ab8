"""The page of a replay: its figures, well-formed, escaped, described for those who cannot see it, self-contained."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import bftrain
from bftrain import ReplaySettings, Settings
from tests.helpers.in_process import CommandLine
from tests.unit.replay.cases import ReplayOutcome, log_of, page_of, task, text_of

LOG = log_of((0.0, "ab", ""), (100.0, "", "b"), (120.0, "cd", ""), end_s=7200.0, start_s=1.6e9)
EVIL = "<script>alert('x')</script>&\"'"
VOID = {"meta", "link"}


class Checker(HTMLParser):
    """Checks that every element is closed, and collects elements, text and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text += data


def read(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def study_of(*tasks: str, work_samples: float = 5e3) -> ReplayOutcome:
    return bftrain.replay(
        LOG, [task(name, work_samples=work_samples) for name in tasks], Settings(), baseline="equal-share"
    )


def data_of(page: str) -> dict[str, Any]:
    page_data: dict[str, Any] = json.loads(read(page).scripts[0])
    return page_data


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capfd)


def test_a_log_that_no_calendar_holds_has_its_page() -> None:
    far = log_of((0.0, "ab", ""), end_s=60.0, start_s=1e13)
    page = page_of(bftrain.replay(far, [task("a")], Settings()))
    assert "time since the log's start" in page


def test_what_strangers_wrote_is_text_and_never_markup() -> None:
    page = page_of(study_of(EVIL), EVIL)
    checked = read(page)
    assert len(checked.scripts) == 3
    assert checked.text.count(EVIL) >= 2  # the title and the task
    assert EVIL in json.loads(checked.scripts[0])["figures"]["holders"]["raster"]["labels"]


def test_nothing_is_fetched() -> None:
    page = page_of(study_of("one"))
    outside_scripts = re.sub(r"<script.*?</script>|href=\"data:image/[^\"]*", "", page, flags=re.DOTALL)
    assert not re.findall(r"(?:https?:)?//[^\s\"'<)]+", outside_scripts)
    named = re.findall(r"\b(?:src|href|url|@import)\s*[=(]\s*[\"']?([^\"'>)]*)", outside_scripts)
    places = set(re.findall(r'id="([^"]*)"', outside_scripts))
    assert {name for name in named if name.removeprefix("#") not in places} == {"data:,", "#follow=one"}
    assert not re.search(r"\bon\w+\s*=", outside_scripts)


def test_every_picture_is_described_in_words_and_figures() -> None:
    page = read(page_of(study_of("one")))
    drawn = [attributes for _, attributes in page.found if "draw" in (attributes.get("class") or "").split()]
    assert [one["id"] for one in drawn] == [f"draw-{name}" for name in data_of(page_of(study_of("one")))["figures"]]
    assert len(drawn) == 8
    for attributes in drawn:
        assert attributes["role"] == "img"
        assert re.search(r"\d", attributes["aria-label"] or "")


def test_the_waterfall_comes_down_from_all_idle_node_time_to_the_work_that_counts() -> None:
    log = log_of((0.0, "abcd", ""), (50.0, "", "b"), (90.0, "ef", "a"), (300.0, "", "cd"), end_s=900.0)
    done = bftrain.replay(log, [task("x", grow_cost_s=5.0, start_cost_s=9.0), task("y", max_nodes=2)], Settings())
    summary = done.summary
    rows = data_of(page_of(done))["figures"]["waterfall"]["spec"]["data"]["values"]
    assert rows[0]["to"] == summary["idle_node_h"] == pytest.approx(done.part.idle_node_s / 3600.0)
    useful, steps = rows[-2], rows[1:-2]
    assert [step["to"] for step in steps] == [rows[0]["to"], *(step["from"] for step in steps[:-1])]
    assert useful["to"] == pytest.approx(steps[-1]["from"])
    assert useful["to"] == pytest.approx(summary["headline"]["harvest_node_h"])
    lost = sum(cause["node_h"] for cause in summary["lost"].values()) + sum(summary["unused_node_h"].values())
    assert lost + useful["to"] == pytest.approx(summary["idle_node_h"])


def test_where_the_tasks_ran_out_no_bar_is_shorter_than_the_work_done() -> None:
    # Without costs the tasks need less node-time: its bar would look as if less had been possible than was done
    slow = [task(rate=(10.0, 18.0), work_samples=3000.0, start_cost_s=60.0)]
    done = bftrain.replay(LOG, slow, Settings(horizon_s=3600.0))
    assert done.ceiling is not None
    assert done.ceiling.used_node_s < done.result.used_node_s
    rows = data_of(page_of(done))["figures"]["waterfall"]["spec"]["data"]["values"]
    assert rows[-1]["name"] == "Work that counts"
    assert "Used, without costs" not in page_of(done)


def test_the_row_of_a_task_counts_all_its_waits_and_all_its_losses() -> None:
    # It waits for 20 s, does 900 in 90 s, is done at 80 % of that time, and this is noticed when its node leaves
    log = log_of((20.0, "a", ""), (110.0, "", "a"), end_s=7200.0)
    settings = ReplaySettings(semantics="published")
    page = page_of(bftrain.replay(log, [task("mine", rate=(10.0,), work_samples=720.0)], settings))
    (row,) = re.findall(r'<tr><th scope="row" data-key="mine"><a href="#follow=mine">mine</a></th>(.*?)</tr>', page)
    cells = [cell.replace("&nbsp;", " ") for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
    assert cells == ["finished", "0 s", "20 s", "110 s", "20 s", "0.025", "100.0 %", "20.0 %", "1", "0", "1"]
    assert "Late notice of finish" in page
    assert "waiting for tasks to start" not in page  # there were none


@pytest.mark.parametrize("end_s", [0.0, 50.0])
def test_an_empty_log_has_a_page_too(end_s: float) -> None:
    page = read(page_of(bftrain.replay(log_of(end_s=end_s), [task()], Settings())))
    assert "there was nothing to harvest" in page.text
    assert "Where the idle node-time went" not in page.text
    assert not re.search(r"\bnan\b", page.text.lower())


@pytest.mark.parametrize("tables", ["csv", "parquet"])
def test_a_folder_gives_the_page_that_memory_gave(command: CommandLine, tmp_path: Path, tables: str) -> None:
    done = bftrain.replay(LOG, [task("one"), task("two", max_nodes=1)], Settings(), baseline="equal-share")
    done.write(tmp_path / "out", tables=tables)
    assert command("report", tmp_path / "out", "-o", tmp_path / "again.html").code == 0
    again, written = ((tmp_path / name).read_text() for name in ("again.html", "out/report.html"))
    assert data_of(again)["figures"] == data_of(written)["figures"]
    assert read(again).text == read(written).text


@pytest.mark.parametrize("row", ["one,stranger,", "stranger,a,"])
def test_a_node_or_a_task_that_other_files_do_not_know_is_refused(
    command: CommandLine, tmp_path: Path, row: str
) -> None:
    study_of("one").write(tmp_path / "out")
    table = tmp_path / "out" / "allocations.csv"
    table.write_text(table.read_text().replace("one,a,", row))
    ended = command("report", tmp_path / "out", "-o", tmp_path / "again.html")
    assert (ended.code, "stranger" in ended.err) == (3, True)


def test_the_page_tells_how_many_nodes_were_idle_and_worked() -> None:
    log = log_of((0.0, "abcd", ""), end_s=1000.0)
    page = page_of(bftrain.replay(log, [task("one", rate=(10.0,))]))
    assert "On average 4 nodes were idle, and 1 of them worked" in text_of(page)
