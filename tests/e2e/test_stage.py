"""The stage: its processes can be stopped and killed one by one."""

from __future__ import annotations

import signal

import pytest

from bftrain_elastic.conformance import ConformanceCase
from bftrain_elastic.manager import launchers
from bftrain_elastic.tryout import sample_script_plain
from bftrain_elastic.tryout.local_agents import alive
from bftrain_elastic.tryout.local_stage import LauncherNonconformance, LocalStage


def test_parts_of_a_node_are_stopped_and_killed() -> None:
    with LocalStage(
        launchers.process, [str(sample_script_plain.__file__)], nodes=("n1",), preload=(), grace_s=20
    ) as stage:
        task = stage.new("--steps", "100000")
        stage.do("start", task, "n1")
        for part in ("worker", "prefork"):
            stage.messages.steps(task, 1)
            (pid,) = stage.send(signal.SIGKILL, part, "n1")
            stage.messages.until(lambda pid=pid: not alive([pid]), "it is dead")
        stage.messages.steps(task, 1)
        (agent,) = stage.send(signal.SIGKILL, "agent", "n1")
        stage.messages.until(lambda: "n1" not in stage.hub_nodes(), "it is gone")
        stage.find("n1")
        assert stage.processes("agent", "n1") != [agent]
        stage.messages.steps(task, 1)
        stage.send(signal.SIGSTOP, "agent", "n1")


def test_a_case_that_fails_leaves_nothing_to_the_next_one() -> None:
    def fails(stage: LocalStage) -> None:
        stage.do("start", stage.new("--steps", "100000"), "n1")
        stage.launcher.drop(stage.new())
        stage.lose("n2")
        stage.send(signal.SIGKILL, "agent", "n3")
        stage.messages.until(lambda: stage.hub_nodes() == {"n1"}, "two nodes are gone")
        raise LauncherNonconformance("as wanted")

    names = ("n1", "n2", "n3")
    with LocalStage(launchers.process, [str(sample_script_plain.__file__)], nodes=names, preload=()) as stage:
        with pytest.raises(LauncherNonconformance, match="as wanted"):
            ConformanceCase("fails", fails).check(stage)
        assert (stage.leftovers(), stage.hub_nodes()) == ([], set(names))
        task = stage.new("--steps", "100000")
        stage.do("start", task, *names)
        stage.messages.steps(task, 3)
        stage.end(task)
