"""Campaigns on the page of a replay: stretch by user with its bound, and users' shares of the node-time so far."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bftrain import Settings
from bftrain_replay import replay_folder
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlTable, PageSection, html
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.drawing.vega import svg
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import report
from bftrain_replay.reporting.report_data import of_folder, of_study
from bftrain_replay.reporting.user_shares import BOUND, OTHERS, campaigns, shares_so_far
from bftrain_replay.study import ReplayStudy, study
from bftrain_replay.tables import CampaignRow
from tests.unit.replay.cases import log_of, task

LOG = log_of((0.0, "ab", ""), end_s=4000.0)


def a_study(*users: str, work: float = 2000.0) -> ReplayStudy:
    tasks = [
        task(f"t{place}", rate=(10.0,), work_samples=work, user=user, campaign=f"c{place}", submit_s=20.0 * place)
        for place, user in enumerate(users)
    ]
    return study(LOG, tasks, Settings(max_tasks=1))


def a_row(number: int, user: str, stretch: float | None, bound: float | None, **more: Any) -> CampaignRow:  # noqa: ANN401 - the fields' own types
    ended = stretch is not None
    row = CampaignRow(
        number=number,
        user=user,
        campaign="",
        created_s=100.0,
        tasks=3,
        tasks_finished=3,
        node_h=2.0,
        end_s=100.0 + 50.0 * (stretch or 0.0) if ended else None,
        least_s=50.0 if ended else None,
        stretch=stretch,
        virtual_end_s=None,
        rivals=1.0,
        bound_s=None if bound is None else 50.0 * bound,
        stretch_bound=bound,
    )
    return replace(row, **more)


def the_section(rows: list[CampaignRow]) -> PageSection:
    section = campaigns(rows)
    assert section is not None
    return section


def the_figure(section: PageSection) -> ChartFigure:
    (figure,) = (part for part in section.parts if getattr(part, "name", "") == "stretch")
    return figure  # type: ignore[return-value]  # what has that name is one


def the_tables(section: PageSection) -> list[list[list[str]]]:
    return [
        [[getattr(cell, "text", cell) for cell in row] for row in part.rows]
        for part in section.parts
        if isinstance(part, HtmlTable)
    ]


def lines_of(figure: ChartFigure) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in figure.spec["layer"][0]["data"]["values"]:
        found.setdefault(row["of"], []).append((row["at"], row["share"]))
    return found


ROWS = [
    a_row(0, "ann", 2.0, 4.0),
    a_row(1, "ann", 6.0, 3.0),
    a_row(2, "bob", 1.0, None, node_h=9.0),
    a_row(3, "bob", None, None),
]


def test_each_user_has_a_row_with_stretches_and_how_much_of_the_bound_they_took() -> None:
    section = the_section(ROWS)
    by_user, worst = the_tables(section)
    assert by_user == [
        ["ann", "2", "2", "4", "4", "6", "200.0 %", "1 of 2"],
        ["bob", "2", "1", "11", "1", "1", "-", "1 of 1"],
    ]
    assert [row[0] for row in worst] == ["no. 1", "no. 0", "no. 2"], "the largest stretch first"
    assert worst[0][-3:] == ["6", "3", "no"]
    assert worst[2][-3:] == ["1", "-", "yes"]
    said = str(section.parts[0])
    assert "3 of 4 campaigns came to their end, with a stretch of <strong>3</strong> on average; 2 of them" in said


def test_lines_are_shares_of_all_campaigns_of_a_user_and_the_bound_is_dashed() -> None:
    figure = the_figure(the_section(ROWS))
    lines = lines_of(figure)
    assert list(lines) == ["bob", "ann", BOUND], "who held most is the first, as in the other pictures"
    assert (2.0, 0.5) in lines["ann"]
    assert (6.0, 1.0) in lines["ann"]
    assert max(share for _, share in lines["bob"]) == 0.5, "one of the two has not ended"
    assert lines[BOUND][1:3] == [(3.0, 1 / 3), (4.0, 2 / 3)]
    encoding = figure.spec["layer"][0]["encoding"]
    assert encoding["color"]["scale"]["range"] == [HUES[0], HUES[1], "@ink"]
    assert encoding["strokeDash"]["scale"]["range"][-1] != encoding["strokeDash"]["scale"]["range"][0]
    assert encoding["y"]["title"] == "of all campaigns"
    assert "<svg" in svg(figure)


def test_a_user_keeps_the_colour_where_another_has_no_line() -> None:
    figure = the_figure(the_section([*ROWS, a_row(4, "zoe", None, None, node_h=99.0)]))
    scale = figure.spec["layer"][0]["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True))["bob"] == HUES[1]


def test_users_called_as_what_is_no_user_have_lines_and_colours_of_their_own() -> None:
    users = ["", "no user", OTHERS, BOUND, *(f"u{number}" for number in range(len(HUES)))]
    rows = [a_row(number, user, 2.0 + number, 9.0, node_h=99.0 - number) for number, user in enumerate(users)]
    figure = the_figure(the_section(rows))
    lines = lines_of(figure)
    shown = ["no user", "user 'no user'", "user 'others'", "user 'the bound, of all'", "u0"]
    assert list(lines)[: len(shown)] == shown
    assert list(lines)[-2:] == [OTHERS, BOUND]
    scale = figure.spec["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == list(lines)
    assert len(set(scale["range"])) == len(scale["domain"])


def test_shares_of_users_called_as_what_is_no_user_are_their_own() -> None:
    figure = shares_so_far(of_study(a_study("", "no user", OTHERS, "user 'others'"), InputSource()))
    assert figure is not None
    assert {part.of: part.columns["share"][-1] for part in figure.series} == {
        name: pytest.approx(1 / 4) for name in ("no user", "user 'no user'", "user 'others'", "user 'user 'others''")
    }


def test_of_many_users_those_with_least_are_one_line() -> None:
    rows = [a_row(number, f"u{number:02d}", 1.0 + number, 9.0, node_h=50.0 - number) for number in range(20)]
    lines = lines_of(the_figure(the_section(rows)))
    assert list(lines)[:2] == ["u00", "u01"]
    assert list(lines)[-2:] == [OTHERS, BOUND]
    assert len(lines) <= len(HUES)


def test_bounds_beyond_the_largest_stretch_do_not_stretch_the_picture() -> None:
    figure = the_figure(the_section([a_row(0, "ann", 2.0, 4000.0), a_row(1, "ann", 3.0, 2.5)]))
    (_, high) = figure.spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert high < 4.0


def test_one_campaign_is_shown_without_a_table_of_the_largest() -> None:
    section = the_section([a_row(0, "ann", 2.0, 4.0)])
    said = "One campaign of 1 came to its end, with a stretch of <strong>2</strong>, within its bound."
    assert said in str(section.parts[0])
    assert "beyond its bound" in str(the_section([a_row(0, "ann", 4.0, 2.0)]).parts[0])
    assert len(the_tables(section)) == 1


@pytest.mark.parametrize("rows", [[], [a_row(0, "ann", None, None)]])
def test_where_none_ended_there_is_no_such_section(rows: list[CampaignRow]) -> None:
    assert campaigns(rows) is None


def test_the_page_has_it_whether_the_run_is_in_memory_or_in_its_folder(tmp_path: Path) -> None:
    done = a_study("ann", "bob", "ann")
    made = of_study(done, InputSource())
    replay_folder.write(done, tmp_path, InputSource())
    read = of_folder(tmp_path)
    assert made.campaigns == read.campaigns
    assert len(made.campaigns) == 3
    text = html(report.page(made))
    assert text == html(report.page(read))
    assert "<h2>Campaigns</h2>" in re.sub(r"<h2[^>]*>", "<h2>", text)
    assert {"stretch", "users", "shares"} <= {figure.name for figure in report.figures(made)}
    nobodys = html(report.page(of_study(a_study("", ""), InputSource())))
    assert "Campaigns by user" in nobodys, "campaigns that have a name are shown even without a user"


def test_shares_so_far_add_up_and_end_with_what_each_user_had() -> None:
    made = of_study(a_study("ann", "bob", "ann"), InputSource())
    figure = shares_so_far(made)
    assert figure is not None
    of_users = {part.of: part.columns["share"] for part in figure.series}
    assert list(of_users) == ["ann", "bob"]
    total = of_users["ann"] + of_users["bob"]
    assert total[-1] == pytest.approx(1.0)
    assert of_users["ann"][0] == pytest.approx(1.0), "she was the first"
    assert of_users["ann"][-1] == pytest.approx(2 / 3)
    assert figure.says == "In the end ann had most of the node-time that tasks held, bob least."
    assert "<svg" in svg(figure)
    assert shares_so_far(of_study(a_study("ann", "ann"), InputSource())) is None
    assert shares_so_far(of_study(a_study("", ""), InputSource())) is None
