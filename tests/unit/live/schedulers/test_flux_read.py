"""Flux's commands are built and read as flux-core 0.88 has them, and pilots give way to jobs that wait."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bftrain import BadConfig, NotAvailable
from tests.helpers.schedulers import (
    LATER,
    AgentOrder,
    Command,
    CommandFailed,
    PilotOrder,
    PilotState,
    Scheduler,
    Site,
    Trouble,
    flux,
)

SITE = Site(name="t", folder=Path("/nowhere"))
ORDER = PilotOrder(name="bftrain-t", mark="bftrain-t.12ab", script="#!/bin/sh\n", seconds=3600.0, rank=1)
# As flux-core 0.88 printed them
WAITS = {"name": "sleep", "ntasks": 3, "nnodes": 3, "priority": 16, "id": 107407736832, "state": "SCHED", "urgency": 16}
RUNS = {"t_run": 1795691578.5, "duration": 3600.0, "expiration": 1795695178.5, "name": "bftrain-t.12ab", "ntasks": 1}
RUNS |= {"ncores": 2, "nnodes": 1, "priority": 1, "nodelist": "n1", "id": 81973477376, "state": "RUN", "urgency": 1}
OVER = RUNS | {"state": "INACTIVE", "t_inactive": 1795691586.5, "result": "CANCELED", "returncode": 143, "id": 7}


def of_flux(**settings: object) -> flux.Flux:
    return flux.Flux(flux.FluxSettings(**settings))  # type: ignore[arg-type]  # settings of any kind


class Instance:
    """Answers commands as an instance does; the lines are what it prints of queues and nodes."""

    def __init__(self, queues: str = "|y|y|inf", nodes: str = "n[1-4] 4 8", jobs: object = ()) -> None:
        self.answers = {"queue": queues, "resource": nodes, "jobs": json.dumps({"jobs": jobs})}
        self.asked: list[tuple[str, ...]] = []

    async def __call__(self, command: Command) -> str:
        self.asked.append(command.argv)
        return self.answers.get(command.argv[1], "")


def test_jobs_are_read() -> None:
    others = {**RUNS, "name": "bftrain-tt.12ab"}
    site = Instance(jobs=[RUNS, OVER, others, WAITS])
    runs, over = asyncio.run(of_flux().pilots(site, "bftrain-t"))
    assert (runs.id, runs.state, runs.node, runs.mark) == ("81973477376", PilotState.RUNNING, "n1", "bftrain-t.12ab")
    assert (runs.start_s, runs.end_s) == (1795691578.5, 1795695178.5)
    assert (over.state, over.end_s) == (PilotState.TAKEN, 1795691586.5)


@pytest.mark.parametrize(
    ("job", "state"),
    [
        ({"state": "DEPEND"}, PilotState.WAITING),
        ({"state": "SCHED"}, PilotState.WAITING),
        ({"state": "CLEANUP"}, PilotState.ENDING),
        ({"state": "NEW"}, PilotState.ENDING),
        ({"state": "INACTIVE", "result": "COMPLETED", "returncode": 0}, PilotState.LEFT),
        ({"state": "INACTIVE", "result": "TIMEOUT", "returncode": 142}, PilotState.TAKEN),
        ({"state": "INACTIVE", "result": "FAILED", "returncode": 143}, PilotState.TAKEN),
        ({"state": "INACTIVE", "result": "FAILED", "returncode": 64}, PilotState.FAILED),
    ],
)
def test_states_are_those_of_the_table(job: dict[str, object], state: PilotState) -> None:
    (pilot,) = asyncio.run(of_flux().pilots(Instance(jobs=[{**RUNS, **job}]), "bftrain-t"))
    assert pilot.state is state


@pytest.mark.parametrize("said", ["", "{", '{"jobs": 3}', "{}", '{"jobs": [{"id": "x"}]}'])
def test_nonsense_is_not_taken_for_no_jobs(said: str) -> None:
    site = Instance()
    site.answers["jobs"] = said
    for ask in (of_flux().pilots(site, "bftrain-t"), of_flux().waiting_jobs(site)):
        with pytest.raises(CommandFailed, match="cannot be read"):
            asyncio.run(ask)


def test_jobs_of_others_that_wait_are_counted_in_nodes() -> None:
    pilot = WAITS | {"name": "bftrain-other.34cd", "priority": 1}
    held = WAITS | {"priority": 0}
    of_cores = {key: value for key, value in WAITS.items() if key != "nnodes"} | {"ncores": 3, "id": 9, "priority": 20}
    site = Instance(jobs=[pilot, held, WAITS, of_cores])
    batch = of_flux()
    asyncio.run(batch.limits(site))
    assert asyncio.run(batch.waiting_jobs(site)) == [2, 3], (
        "three cores are two nodes of two; the higher priority first"
    )


def test_a_node_with_a_job_on_some_of_its_cores_is_not_idle() -> None:
    site = Instance(nodes="free n[1-3]\nallocated n[3-4]\n")
    assert asyncio.run(of_flux().idle(site)) == {"n1", "n2"}
    assert asyncio.run(of_flux().idle(Instance(nodes="free \nallocated n[1-4]\n"))) == frozenset()


def test_limits_are_those_of_the_queue() -> None:
    plain = asyncio.run(of_flux().limits(Instance()))
    assert (plain.longest_s, plain.nodes) == (LATER, {"n1", "n2", "n3", "n4"})
    assert [text[:24] for text in plain.remarks] == ["Flux preempts no jobs: p"]
    queues = "main*|y|y|43200.0\nidle|n|n|5400.0\n"
    assert asyncio.run(of_flux().limits(Instance(queues))).longest_s == 43_200
    idle = asyncio.run(of_flux(queue="idle").limits(Instance(queues)))
    assert idle.longest_s == 5400
    assert idle.remarks[:2] == ("queue 'idle' starts no jobs now", "queue 'idle' takes no jobs now")


@pytest.mark.parametrize(("queue", "says"), [("nix", "no such queue"), ("", "no default queue")])
def test_a_queue_that_can_never_work_is_refused(queue: str, says: str) -> None:
    with pytest.raises(NotAvailable, match=says) as refused:
        asyncio.run(of_flux(queue=queue).limits(Instance("main|y|y|inf\nidle|y|y|inf\n")))
    assert not isinstance(refused.value, CommandFailed), "it is no failure that passes"


def test_a_pilot_takes_one_whole_node_and_comes_after_all_others() -> None:
    batch = of_flux(queue="idle", options=("--bank=physics",))
    *words, script = batch.submission(PilotOrder(**{**_fields(ORDER), "avoid": ("n1", "n2")})).argv
    assert " ".join(words) == (
        "flux submit -N1 -n1 --exclusive --job-name=bftrain-t.12ab --output=/dev/null --time-limit=3600s --urgency=2 "
        "--queue=idle --requires=-host:n1,n2 --bank=physics sh -c"
    )
    assert script == ORDER.script
    assert "node=$(flux getattr hostname)" in batch.script(AgentOrder(argv=("agent",)), SITE)
    site = Instance()
    asyncio.run(batch.cancel(site, ["7", "8"]))
    assert site.asked == [("flux", "cancel", "7", "8")]


def _fields(order: PilotOrder) -> dict[str, object]:
    return {name: getattr(order, name) for name in order.__struct_fields__}


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        ("[Errno 22] 'nix' is not a valid queue", "refused"),
        ("[Errno 22] job submission to idle is disabled: for maintenance", "refused"),
        ("[Errno 1] host constraint contains invalid hosts: host 'zz' not found", "refused"),
        ("[Errno 22] requested duration (1.7h) exceeds policy limit of 1.5h for queue idle", "limit"),
        ("flux-resource: ERROR: Unable to connect to Flux: broker socket /run/flux/local was not found", "away"),
        ("did not answer within 20 s", "away"),
        ("no version has said this yet", "away"),
        ("flux-cancel: ERROR: f39tiVuq: job is inactive", "gone"),
        ("flux-cancel: ERROR: f4fr: unknown job id", "gone"),
    ],
)
def test_what_failed_says_what_follows(said: str, trouble: str) -> None:
    assert of_flux().trouble(CommandFailed(("flux",), 1, said)) is Trouble(trouble)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"queu": "q"}, "did you mean"),
        ({"queue": 3}, "queue"),
        ({"poll_s": 0}, "p"),
        ({"options": ["--queue=main"]}, "use queue"),
    ],
)
def test_settings_of_a_site_with_flux_are_held_to_their_rules(table: dict[str, object], says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        flux.make(table, SITE)
    assert isinstance(flux.make({}, SITE), Scheduler)
