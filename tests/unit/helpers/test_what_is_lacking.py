"""A test that cannot run says which command would let it run, and figures are printed as they were measured."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.helpers import chromium, slurm
from tests.helpers.figures import Figures


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_name: str, path: str | None = None) -> None:
        del path

    monkeypatch.setattr(shutil, "which", nothing)


@pytest.mark.usefixtures("bare_machine")
def test_the_reason_names_the_command_that_helps() -> None:
    assert "slurmctld" in slurm.lacking()
    assert "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge" in slurm.lacking()
    assert "apt-get install --no-install-recommends chromium" in chromium.lacking()


def test_a_user_without_a_name_cannot_run_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"{path}/{name}")
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    assert "useradd --uid 4000000000" in slurm.lacking()


def test_nothing_is_lacking_where_everything_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"{path}/{name}")
    assert slurm.lacking() == chromium.lacking() == ""


def test_figures_of_all_tests_make_one_table() -> None:
    figures = Figures()
    figures.of("test_a").add("1,000 tasks", 12.3456, "ms")
    figures.of("test_long_name").add("10", 7)
    figures.of("test_b").add("many", 23_883.4, "events")
    assert figures.lines() == [
        "test_a          1,000 tasks         12.35 ms",
        "test_long_name  10                      7",
        "test_b          many               23,883 events",
    ]
