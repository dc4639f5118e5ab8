"""How long tasks took, on the page: sentences, lines and users, against the figures of small replays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bftrain import Settings
from bftrain_replay.drawing.html_page import html
from bftrain_replay.drawing.vega import svg
from bftrain_replay.metrics.task_figures import TaskColumns
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import report
from bftrain_replay.reporting.completion import completion
from bftrain_replay.reporting.cumulative import CumulativeLine, over_ratios, over_time
from bftrain_replay.reporting.report_data import ReportData, of_study
from bftrain_replay.reporting.user_shares import OTHERS, by_user, users_over_time
from bftrain_replay.study import study
from tests.unit.replay.cases import log_of, task

LOG = log_of((0.0, "ab", ""), (500.0, "", "b"), end_s=1000.0)


def made(*, users: tuple[str, ...] = ("", "", ""), work: float = 2000.0, **given: Any) -> ReportData:  # noqa: ANN401 - the fields' own types
    tasks = [
        task(f"t{place}", rate=(10.0,), work_samples=work * (place + 1), user=user, submit_s=20.0 * place, **given)
        for place, user in enumerate(users)
    ]
    return of_study(study(LOG, tasks, Settings(horizon_s=120.0, placement="grouped")), InputSource())


def text_of(material: ReportData) -> str:
    section = completion(material)
    assert section is not None
    return " ".join(str(part) for part in section.parts)


def test_who_finished_who_did_not_and_who_was_late() -> None:
    said = text_of(made(work=4000.0, deadline_s=500.0))
    # One of two nodes goes away at 500 s: the first is done after 400 s, the others have too little time
    assert "1 task finished, on average <strong>" in said
    assert "<strong>2 tasks</strong> had not finished in the end, and are missing from that" in said
    assert "2 of 3 deadlines were missed, by " in said
    one_open = text_of(made(users=("", ""), work=5100.0))
    assert "<strong>1 task</strong> had not finished in the end, and is missing from that" in one_open


def test_without_finished_tasks_it_says_so_and_draws_nothing_empty() -> None:
    material = made(work=1e9)
    assert "No task finished." in text_of(material)
    names = [figure.name for figure in report.figures(material)]
    assert not {"completion", "rho", "slowdown"} & set(names)


def test_where_nothing_ends_there_is_no_such_section() -> None:
    endless = of_study(study(LOG, [task("endless")], Settings()), InputSource())
    assert completion(endless) is None
    assert "How long tasks took" not in html(report.page(endless))


def test_lines_end_at_the_share_that_came_so_far() -> None:
    figures = {figure.name: figure for figure in report.figures(made(work=4000.0))}
    rows = figures["completion"].spec["data"]["values"]
    for name, share in (("started", 1.0), ("finished", 1 / 3)):
        line = [row["share"] for row in rows if row["of"] == name]
        assert line == sorted(line)
        assert line[-1] == pytest.approx(share)
    rho = figures["rho"].spec["layer"][0]["data"]["values"]
    assert rho[-1]["share"] == pytest.approx(1 / 3)
    for name in ("completion", "rho", "slowdown"):
        assert "<path" in svg(figures[name])


def test_far_apart_times_stand_on_a_logarithmic_axis_and_near_ones_do_not() -> None:
    near = over_time([CumulativeLine("a", np.array([60.0, 90.0, 200.0]), 3)], "long", {})["encoding"]["x"]
    assert near["scale"]["domain"][0] == 0.0
    assert near["title"] == "minutes long"
    far = over_time([CumulativeLine("a", np.array([0.0, 1.0, 60.0, 60.0, 9000.0, np.nan]), 6)], "long", {})["encoding"][
        "x"
    ]
    assert far["scale"]["type"] == "log"
    low, high = far["scale"]["domain"]
    assert 0.0 < low < 60.0 / 3600.0 < high == 2.5


def test_ratios_always_show_where_1_is() -> None:
    for values in ([3.0, 9.0], [0.1, 0.2], [1.0]):
        layers = over_ratios([CumulativeLine("a", np.array(values), len(values))], "rho", {})["layer"]
        low, high = layers[0]["encoding"]["x"]["scale"]["domain"]
        assert low < 1.0 < high
        assert low <= min(values)
        assert high > max(values)


def test_users_lie_upon_each_other_and_add_up_to_the_nodes_used() -> None:
    material = made(users=("ann", "bob", "", "ann"), work=1000.0)
    figure = users_over_time(material)
    assert figure is not None
    held_s = 0.0
    for part in figure.series:
        held_s += float((part.columns["nodes"] * np.diff(np.append(part.times_s, part.end_s))).sum())
    assert held_s / 3600.0 == pytest.approx(material.summary["used_node_h"])
    assert {part.of for part in figure.series} == {"ann", "bob", "no user"}
    assert "ann" in figure.says
    assert "<path" in svg(figure)
    page = html(report.page(material))
    assert "Slowdown by user" in page
    assert users_over_time(made()) is None  # tasks without users


def test_many_users_are_shown_by_the_largest_and_the_others_as_one() -> None:
    tasks = made(users=tuple(f"u{place}" for place in range(12)), work=300.0).task_columns
    assert isinstance(tasks, TaskColumns)
    groups = by_user(tasks, 5)
    assert [name for name, _ in groups][-1] == OTHERS
    assert len(groups) == 5
    assert np.sum([which for _, which in groups], axis=0).tolist() == [1] * 12  # each task once
    hours = [float(tasks.node_h[which].sum()) for _, which in groups[:-1]]
    assert hours == sorted(hours, reverse=True)
