"""The page of a replay: its figures, well-formed, escaped, described for those who cannot see it, self-contained."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadInput, ReplaySettings, Settings
from bftrain_replay import replay_folder
from bftrain_replay.provenance import LOG_FILE, InputSource
from bftrain_replay.reporting import report, report_data
from bftrain_replay.reporting.completion import SHOWN
from bftrain_replay.reporting.headline_section import compared
from bftrain_replay.reporting.losses import CAUSES, node_hours
from bftrain_replay.results.headline import harvest_node_h
from bftrain_replay.study import ReplayStudy, study
from tests.unit.replay.cases import log_of, task

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


def study_of(*tasks: str, work_samples: float = 5e3) -> ReplayStudy:
    return study(LOG, [task(name, work_samples=work_samples) for name in tasks], Settings(), baseline="equal-share")


def page_of(done: ReplayStudy, title: str = "") -> str:
    return report.render(report_data.of_study(done, InputSource()), title)


def data_of(page: str) -> dict[str, Any]:
    page_data: dict[str, Any] = json.loads(read(page).scripts[0])
    return page_data


def test_a_page_of_well_formed_html_with_the_figures_in_it() -> None:
    page = read(page_of(study_of("one", "two")))
    for text in (
        "equal-share",
        "without costs",
        "2020-09-13 12:26:40 UTC",
        "Every task finished",
        "What would be better",
        "one",
        "max_tasks",
    ):
        assert text in page.text, text


def test_a_log_that_no_calendar_holds_has_its_page() -> None:
    far = log_of((0.0, "ab", ""), end_s=60.0, start_s=1e13)
    page = page_of(study(far, [task("a")], Settings()))
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
    assert {name for name in named if name.removeprefix("#") not in places} == {"data:,", "#follow=task:one"}
    assert not re.search(r"\bon\w+\s*=", outside_scripts)


def test_every_picture_is_described_in_words_and_figures() -> None:
    page = read(page_of(study_of("one")))
    drawn = [attributes for _, attributes in page.found if "draw" in (attributes.get("class") or "").split()]
    assert [one["id"] for one in drawn] == [f"draw-{name}" for name in data_of(page_of(study_of("one")))["figures"]]
    assert len(drawn) == 10
    for attributes in drawn:
        assert attributes["role"] == "img"
        assert attributes["id"] == "draw-time" or re.search(r"\d", attributes["aria-label"] or "")


def test_the_waterfall_comes_down_from_all_idle_node_time_to_the_work_that_counts() -> None:
    log = log_of((0.0, "abcd", ""), (50.0, "", "b"), (90.0, "ef", "a"), (300.0, "", "cd"), end_s=900.0)
    done = study(log, [task("x", grow_cost_s=5.0, start_cost_s=9.0), task("y", max_nodes=2)], Settings())
    page_data = report_data.of_study(done, InputSource()).summary
    rows = data_of(page_of(done))["figures"]["waterfall"]["spec"]["data"]["values"]
    assert rows[0]["to"] == page_data["idle_node_h"] == pytest.approx(done.part.idle_node_s / 3600.0)
    useful, steps = rows[-2], rows[1:-2]
    assert [step["to"] for step in steps] == [rows[0]["to"], *(step["from"] for step in steps[:-1])]
    assert useful["to"] == pytest.approx(steps[-1]["from"])
    assert sum(node_hours(page_data, cause) for cause in CAUSES) + harvest_node_h(page_data) == pytest.approx(
        page_data["idle_node_h"]
    )


def test_the_dashed_bar_is_the_replay_without_costs() -> None:
    done = study_of("one", work_samples=1e9)
    row = data_of(page_of(done))["figures"]["waterfall"]["spec"]["data"]["values"][-1]
    assert done.ceiling is not None
    assert row["name"] == "Used, without costs"
    assert row["to"] == pytest.approx(done.ceiling.used_node_s / 3600.0)


def test_where_the_tasks_ran_out_no_bar_is_shorter_than_the_work_done() -> None:
    # Without costs the tasks need less node-time: its bar would look as if less had been possible than was done
    slow = [task(rate=(10.0, 18.0), work_samples=3000.0, start_cost_s=60.0)]
    done = study(LOG, slow, Settings(horizon_s=3600.0))
    assert done.ceiling is not None
    assert done.ceiling.used_node_s < done.result.used_node_s
    rows = data_of(page_of(done))["figures"]["waterfall"]["spec"]["data"]["values"]
    assert rows[-1]["name"] == "Work that counts"
    assert "Used, without costs" not in page_of(done)


def test_advice_begins_with_what_took_most() -> None:
    # One task that may hold one of four nodes: three are never used
    done = study(log_of((0.0, "abcd", ""), end_s=3600.0), [task("one", max_nodes=1, rate=(10.0,))], Settings())
    items = re.findall(r"<li>(.*?)</li>", page_of(done))
    assert "max_nodes" in items[0]
    assert "3&nbsp;node-hours, 75.0&nbsp;%" in items[0]


def test_many_tasks_are_cut_and_the_page_says_so() -> None:
    made = report_data.of_study(study_of("one"), InputSource())
    rows = [{**made.tasks[0], "name": f"t{number}"} for number in range(SHOWN + 1)]
    many = report_data.ReportData(summary=made.summary, tasks=rows, log=made.log, holdings=made.holdings)
    page = read(report.render(many))
    assert f"The {SHOWN:,} of {SHOWN + 1:,} with the most node-time; all are in the table of tasks." in page.text
    assert f"t{SHOWN - 1}" in page.text
    assert f"t{SHOWN}" not in page.text


def test_the_row_of_a_task_counts_all_its_waits_and_all_its_losses() -> None:
    # It waits for 20 s, does 900 in 90 s, is done at 80 % of that time, and this is noticed when its node leaves
    log = log_of((20.0, "a", ""), (110.0, "", "a"), end_s=7200.0)
    settings = ReplaySettings(semantics="published")
    page = page_of(study(log, [task("mine", rate=(10.0,), work_samples=720.0)], settings))
    (row,) = re.findall(
        r'<tr><th scope="row" data-key="mine"><a href="#follow=task:mine">mine</a></th>(.*?)</tr>', page
    )
    cells = [cell.replace("&nbsp;", " ") for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
    assert cells == ["finished", "0 s", "20 s", "110 s", "20 s", "0.025", "100.0 %", "20.0 %", "1", "0", "1"]
    assert "Finished unnoticed" in page
    assert "waits while tasks began" not in page  # there were none


def test_what_has_no_value_has_no_key_to_be_sorted_by() -> None:
    page = page_of(study_of("never", work_samples=1e12))
    assert "<td>-</td>" in page  # it did not finish
    assert 'data-key="None"' not in page
    assert 'data-key="nan"' not in page


@pytest.mark.parametrize("end_s", [0.0, 50.0])
def test_an_empty_log_has_a_page_too(end_s: float) -> None:
    page = read(page_of(study(log_of(end_s=end_s), [task()], Settings())))
    assert "there was nothing to harvest" in page.text
    assert "Where the idle node-time went" not in page.text
    assert not re.search(r"\bnan\b", page.text.lower())


def test_the_table_shows_the_makespan_only_if_there_is_one() -> None:
    def labels(work_samples: float) -> list[str]:
        done = study(LOG, [task(work_samples=work_samples)], Settings())
        return [str(row[0]) for row in compared(report_data.of_study(done, InputSource())).rows]

    assert "all tasks finished after" in labels(100.0)
    assert "all tasks finished after" not in labels(1e9)


def test_what_no_costs_would_bring_is_not_called_a_bound() -> None:
    page = read(page_of(study(LOG, [task(start_cost_s=7.0)], Settings()))).text
    assert "without costs" in page
    assert "ceiling" not in page.lower()
    assert "possible" not in page  # docs/semantics.md: a replay can come out above it


@pytest.mark.parametrize("tables", ["csv", "parquet"])
def test_a_folder_gives_the_page_that_memory_gave(tmp_path: Path, tables: str) -> None:
    pytest.importorskip("pyarrow", reason="tables as Parquet need pyarrow") if tables == "parquet" else None
    done = study(LOG, [task("one"), task("two", max_nodes=1)], Settings(), baseline="equal-share")
    source = InputSource(log="log.npz", tasks="tasks.toml", baseline="equal-share")
    replay_folder.write(done, tmp_path, source, tables=tables)
    written = (tmp_path / "report.html").read_text()
    again = report.render(report_data.of_folder(tmp_path))
    assert data_of(again)["figures"] == data_of(written)["figures"]
    assert read(again).text == read(written).text


def test_a_folder_without_its_log_is_refused_with_what_to_do(tmp_path: Path) -> None:
    replay_folder.write(study_of("one"), tmp_path)
    (tmp_path / LOG_FILE).unlink()
    with pytest.raises(BadInput, match="run the replay again"):
        report_data.of_folder(tmp_path)


@pytest.mark.parametrize("row", ["one,stranger,", "stranger,a,"])
def test_a_node_or_a_task_that_other_files_do_not_know_is_refused(tmp_path: Path, row: str) -> None:
    replay_folder.write(study_of("one"), tmp_path)
    table = tmp_path / "allocations.csv"
    table.write_text(table.read_text().replace("one,a,", row))
    with pytest.raises(BadInput, match="stranger"):
        report_data.of_folder(tmp_path)
