"""Campaigns on the page of a replay: stretch by user with its bound, and users' shares of the node-time so far."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import bftrain
from bftrain import Settings
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import PageSection, html
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.drawing.vega import svg
from bftrain_replay.reporting import report
from bftrain_replay.reporting.report_data import of_folder
from bftrain_replay.reporting.user_shares import BOUND, OTHERS, campaigns, shares_so_far
from bftrain_replay.tables import CampaignRow
from tests.unit.replay.cases import InputSource, ReplayOutcome, laid_out, log_of, material_of, task, write_replay

LOG = log_of((0.0, "ab", ""), end_s=4000.0)


def a_study(*users: str, work: float = 2000.0) -> ReplayOutcome:
    tasks = [
        task(f"t{place}", rate=(10.0,), work_samples=work, user=user, campaign=f"c{place}", submit_s=20.0 * place)
        for place, user in enumerate(users)
    ]
    return bftrain.replay(LOG, tasks, Settings(max_tasks=1))


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


def lines_of(figure: ChartFigure) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in figure.spec["layer"][0]["data"]["values"]:
        found.setdefault(row["of"], []).append((row["at"], row["share"]))
    return found


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
    figure = shares_so_far(material_of(a_study("", "no user", OTHERS, "user 'others'")))
    assert figure is not None
    assert {part.of: part.columns["share"][-1] for part in figure.series} == {
        name: pytest.approx(1 / 4) for name in ("no user", "user 'no user'", "user 'others'", "user 'user 'others''")
    }


def test_the_page_has_it_whether_the_run_is_in_memory_or_in_its_folder(tmp_path: Path) -> None:
    done = a_study("ann", "bob", "ann")
    made = material_of(done)
    write_replay(done, tmp_path, InputSource())
    read = of_folder(tmp_path)
    assert made.campaigns == read.campaigns
    assert len(made.campaigns) == 3
    text = html(report.page(made))
    assert text == html(report.page(read))
    assert "<h2>Campaigns</h2>" in re.sub(r"<h2[^>]*>", "<h2>", text)
    assert {"stretch", "users", "shares"} <= {figure.name for figure in report.figures(made)}
    nobodys = html(laid_out(a_study("", "")))
    assert "Campaigns by user" in nobodys, "campaigns that have a name are shown even without a user"


def test_shares_so_far_add_up_and_end_with_what_each_user_had() -> None:
    made = material_of(a_study("ann", "bob", "ann"))
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
    assert shares_so_far(material_of(a_study("ann", "ann"))) is None
    assert shares_so_far(material_of(a_study("", ""))) is None
