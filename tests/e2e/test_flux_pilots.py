"""Pilots in a real Flux instance on this machine give way to other jobs, though Flux preempts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import NotAvailable, registry
from tests.helpers.flux import Flux, needs_flux
from tests.helpers.pilots import AgentOrder, Allowed, SchedulerRunner
from tests.helpers.slurm import wait_until

NODES = ("n1", "n2", "n3")
QUEUES = """\
[queues.main]
[queues.idle]
policy.limits.duration = "90m"
[policy.limits]
duration = "12h"
"""
pytestmark = [needs_flux, pytest.mark.soak]


def keeper(instance: Flux, folder: Path, **settings: object) -> SchedulerRunner:
    known = {"pending": 1, "poll_s": 1.0, "lengths_s": [3600], **settings}
    return SchedulerRunner(registry.load("scheduler", "flux"), known, folder, instance.env)


def test_pilots_hold_idle_nodes_and_give_way(tmp_path: Path) -> None:
    with Flux(*NODES) as instance, keeper(instance, tmp_path / "site") as pilots:
        pilots.wait_for(NODES)
        assert "Flux preempts no jobs" in pilots.remarks()
        assert all(one.until_s for one in pilots.news if isinstance(one, Allowed))
        main = instance.submit("-N2", "-x", "sleep", "600")
        assert instance.seconds_until_running(main) < 30, "its nodes were given back"
        wait_until(lambda: len(pilots.agents()) == len(pilots.ours()) == 1, "one node is left", pilots.tell)
        wide = instance.submit("-N3", "-x", "true")
        pilots.ask(pilots.scheduler.look())
        assert len(pilots.agents()) == 1, "a job that waits for more than our nodes takes none of them"
        instance.run("cancel", wide, main)
        pilots.wait_for(NODES, "they come back")
        pilots.do(lambda: pilots.scheduler.want(1, ["n1"]))
        pilots.ask(pilots.scheduler.give_back(["n1", "n2"]))
        pilots.wait_for({"n3"}, "some are given back")
        pilots.ask(pilots.scheduler.leave())
        assert instance.jobs("pending", "running") == []


def test_a_queue_has_its_limits(tmp_path: Path) -> None:
    with Flux("n1", config=QUEUES) as instance:
        with keeper(instance, tmp_path / "site", queue="idle", lengths_s=[86_400]) as pilots:
            pilots.wait_for({"n1"})
            assert instance.jobs("running", form="{queue}|{duration}") == ["idle|5400.0"]
        for queue, says in (("nix", "no such queue"), ("", "no default queue")):
            with (
                keeper(instance, tmp_path / f"other{queue}", queue=queue) as pilots,
                pytest.raises(NotAvailable, match=says),
            ):
                pilots.ask(pilots.scheduler.check(AgentOrder(argv=("agent",))))  # type: ignore[attr-defined]  # of pilots
