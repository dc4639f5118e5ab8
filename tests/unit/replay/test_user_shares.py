"""Campaigns on the page of a replay: stretch by user with its bound, and users' shares of the node-time so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bftrain
from bftrain import Settings
from tests.helpers.in_process import CommandLine
from tests.unit.replay.cases import ReplayOutcome, figures_of, log_of, page_of, task, text_of

LOG = log_of((0.0, "ab", ""), end_s=9000.0)


def a_study(*users: str, work: float = 2000.0) -> ReplayOutcome:
    tasks = [
        task(f"t{place}", rate=(10.0,), work_samples=work, user=user, campaign=f"c{place}", submit_s=20.0 * place)
        for place, user in enumerate(users)
    ]
    return bftrain.replay(LOG, tasks, Settings(max_tasks=1))


def colours(figure: dict[str, Any]) -> dict[str, str]:
    """Return the colour of each line or area of a figure, by its name."""
    layers = figure["spec"].get("layer", [figure["spec"]])
    (scale,) = [
        layer["encoding"]["color"]["scale"] for layer in layers if "scale" in layer["encoding"].get("color", {})
    ]
    return dict(zip(scale["domain"], scale["range"], strict=True))


def test_users_called_as_what_is_no_user_have_lines_and_colours_of_their_own() -> None:
    users = ["", "no user", "others", *(f"u{number}" for number in range(12))]
    figures = figures_of(page_of(a_study(*users)))
    named = ["no user", "user 'no user'", "user 'others'"]
    for name in ("users", "shares"):
        shown = colours(figures[name])
        assert len(set(shown.values())) == len(shown), name
        assert "others" in shown, name
        assert {user for user in shown if user.startswith("user ")} <= set(named), name
    assert figures["shares"]["spec"]["description"].endswith("the largest share of the tasks' node-time.")


def test_the_page_has_it_whether_the_run_is_in_memory_or_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done = a_study("ann", "bob", "ann")
    done.write(tmp_path / "out")
    ended = CommandLine(monkeypatch, capfd)("report", tmp_path / "out", "-o", tmp_path / "again.html")
    assert ended.code == 0, ended.err
    made, again = page_of(done), (tmp_path / "again.html").read_text()
    assert text_of(made) == text_of(again)
    assert figures_of(made) == figures_of(again)
    assert {"users", "shares"} <= figures_of(made).keys()


def test_shares_so_far_end_with_what_each_user_had() -> None:
    figures = figures_of(page_of(a_study("ann", "bob", "ann")))
    assert figures["shares"]["spec"]["description"].endswith(
        "In the end ann had the largest share of the tasks' node-time, bob the smallest."
    )
    assert "ann 66.7 %" in figures["users"]["spec"]["description"]
    for users in (("ann", "ann"), ("", "")):
        assert "shares" not in figures_of(page_of(a_study(*users)))
