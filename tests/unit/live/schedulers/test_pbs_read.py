"""PBS's commands are built and read right, in both forms in which they print; its hook does no harm."""

from __future__ import annotations

import ast
import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bftrain import BadConfig, NotAvailable
from tests.helpers.fake_pbs_module import EVENTS, HOOK, run_hook
from tests.helpers.schedulers import (
    READER,
    Command,
    CommandFailed,
    HookSpool,
    PilotLimits,
    PilotOrder,
    PilotState,
    Scheduler,
    Site,
    Trouble,
    pbs,
)
from tests.helpers.site_data import site_data

SITE = Site(name="t", folder=Path("/nowhere"))
ORDER = PilotOrder(
    name="bftrain-t", mark="bftrain-t.12ab", script="#!/bin/sh\n# Idle\numask 077\nexec true\n", seconds=3600.0, rank=1
)

LINES = (
    "Job Id: 7.pbs|Job_Name=bftrain-t|job_state=R|exec_host=node7.site.org/0*4|exec_vnode=(node7:ncpus=4)"
    "|Resource_List.walltime=12:00:00|stime=Sat Nov 21 10:10:12 2026"
    "|Variable_List=PBS_O_HOME=/home/x,A=b\\|job_state=F,BFTRAIN_PILOT=bftrain-t.12ab,PBS_O_QUEUE=idle\n"
    "Job Id: 8.pbs|Job_Name=bftrain-t|job_state=Q|Variable_List=BFTRAIN_PILOT=bftrain-t.12ab"
    "|comment=Not Running: Not enough free nodes available\n"
)


def test_jobs_are_read() -> None:
    runs, waits = pbs.read_pilots(pbs.read_jobs(LINES))
    begun = time.mktime((2026, 11, 21, 10, 10, 12, 0, 0, -1))
    assert (runs.id, runs.state, runs.node, runs.mark) == ("7.pbs", PilotState.RUNNING, "node7", "bftrain-t.12ab")
    assert (runs.start_s, runs.end_s) == (begun, begun + 12 * 3600)
    assert (waits.id, waits.state, waits.node, waits.end_s) == ("8.pbs", PilotState.WAITING, "", None)
    assert waits.why.startswith("Not Running")


@pytest.mark.parametrize(
    ("job", "state"),
    [
        ({"job_state": "S"}, PilotState.STOPPED),
        ({"job_state": "E"}, PilotState.ENDING),
        ({"job_state": "H"}, PilotState.WAITING),
        ({"job_state": "?"}, PilotState.ENDING),
        ({"job_state": "F", "substate": 91}, PilotState.TAKEN),
        ({"job_state": "F", "substate": 92, "Exit_status": 0}, PilotState.LEFT),
        ({"job_state": "F", "substate": 93, "Exit_status": 64}, PilotState.FAILED),
        ({"job_state": "F", "substate": 93, "Exit_status": 271}, PilotState.TAKEN),
        ({"job_state": "F", "substate": 93, "Exit_status": -29}, PilotState.TAKEN),
    ],
)
def test_states_are_those_of_the_table(job: dict[str, object], state: PilotState) -> None:
    (pilot,) = pbs.read_pilots({"1.pbs": job})
    assert pilot.state is state


def test_qsub_takes_one_whole_node_and_runs_the_script() -> None:
    command = pbs.Pbs(pbs.PbsSettings(queue="idle", account="a", options=("-l", "mem=1gb"))).submission(ORDER)
    words = " ".join(command.argv)
    assert words.startswith("qsub -N bftrain-t -q idle -j oe ")
    assert "-l select=1:ncpus=1 -l place=exclhost -l walltime=3600" in words
    assert "-v BFTRAIN_PILOT=bftrain-t.12ab -p -100" in words
    assert "-W umask=077" in words
    assert words.endswith("-A a -l mem=1gb -- /bin/sh -c umask 077; exec true"), (
        "no shell of PBS stands above the agent"
    )
    assert command.stdin == ""


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        ("qsub: Unknown queue", "refused"),
        ("qsub: Unauthorized Request", "refused"),
        ("qsub: Queue is not enabled", "refused"),
        ("qsub: Bad UID for job execution", "refused"),
        ("qsub: Job rejected by all possible destinations", "refused"),
        ("qsub: Job exceeds queue and/or server resource limits", "limit"),
        ("qsub: Job violates queue and/or server resource limits", "limit"),
        ("qsub: would exceed queue idle's per-user limit of jobs in 'Q' state", "limit"),
        ("qsub: Maximum number of jobs already in queue for user", "limit"),
        ("Connection refused\nqstat: cannot connect to server pbs (errno=15010)", "away"),
        ("qstat: End of File", "away"),
        ("did not answer within 20 s", "away"),
        ("no version has said this yet", "away"),
        ("qdel: Unknown Job Id 12.pbs", "gone"),
        ("qdel: Job has finished 12.pbs", "gone"),
        ("qdel: Request invalid for state of job 12.pbs", "gone"),
    ],
)
def test_what_failed_says_what_follows(said: str, trouble: str) -> None:
    batch = pbs.Pbs(pbs.PbsSettings(queue="q"))
    assert batch.trouble(CommandFailed(("qsub",), 1, said)) is Trouble(trouble)


def test_plans_of_others_are_read() -> None:
    later, sooner = "Sat Nov 21 12:00:00 2026", "Sat Nov 21 11:00:00 2026"
    jobs = {
        "1.pbs": {
            "Job_Name": "big",
            "estimated.start_time": later,
            "estimated.exec_vnode": "(n1:ncpus=4)+(n2:ncpus=4)",
        },
        "2.pbs": {"Job_Name": "small", "estimated.start_time": sooner, "estimated.exec_vnode": "(n2:ncpus=4)"},
        "3.pbs": {"Job_Name": "bftrain-t", "estimated.start_time": sooner, "estimated.exec_vnode": "(n1:ncpus=4)"},
        "4.pbs": {"Job_Name": "unknown"},
    }
    plans = pbs.read_plans(jobs, "bftrain-t")
    assert plans == {"n1": pbs.moment(later), "n2": pbs.moment(sooner)}


def test_free_nodes_are_those_without_a_job() -> None:
    said = (
        "n1\n    Mom = n1.site\n    state = free\n\nn2\n    jobs = 1.pbs/0\n    state = free\n\nn3\n    state = down\n"
    )
    assert pbs.read_idle(pbs.read(said)) == {"n1"}


@pytest.mark.parametrize("said", ["", "\tx\n", "   = \n"])
def test_nothing_is_nothing(said: str) -> None:
    assert not any(pbs.read(said).values())


@pytest.mark.parametrize("said", ["{", "no job is here\n", "Job Id: 7.pbs\n", "Job Id: 7.pbs|a=b\nc=d\n"])
def test_nonsense_is_not_taken_for_no_pilots(said: str) -> None:
    async def run(command: Command) -> str:
        return "7.pbs\n" if command.argv[0] == "qselect" else said

    with pytest.raises(CommandFailed, match="cannot be read"):
        asyncio.run(pbs.Pbs(pbs.PbsSettings(queue="q")).pilots(run, "bftrain-t"))


def test_times_lengths_and_limits() -> None:
    assert pbs.moment(1795169412) == pbs.moment("1795169412") == 1795169412.0
    assert pbs.moment("Sat Feb 31 10:10:12 2026") is None
    assert pbs.moment("never") is None
    assert pbs.length("100:00:01") == 360001
    assert pbs.length("05:00") == 300
    assert pbs.length("soon") is None
    rules = "[u:PBS_GENERIC=10], [u:jane=20], [o:PBS_ALL=15]"
    assert (pbs.limit(rules, "jane"), pbs.limit(rules, "joe")) == (15, 10)
    assert pbs.limit("", "joe") == pbs.limit(None, "joe") == float("inf")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "queue"),
        ({"queue": "q", "qeue": 1}, "did you mean"),
        ({"queue": ""}, "queue"),
        ({"queue": "q", "options": ["-q", "main"]}, "queue"),
    ],
)
def test_settings_of_a_site_with_pbs_are_held_to_their_rules(table: dict[str, object], says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        pbs.make(table, SITE)


def test_it_is_a_scheduler_and_names_its_queue() -> None:
    assert isinstance(pbs.make({"queue": "idle"}, SITE), Scheduler)

    async def run(_command: Command) -> str:
        return "Queue: workq\n    Priority = 150\n"

    with pytest.raises(NotAvailable, match="no such queue"):
        asyncio.run(pbs.Pbs(pbs.PbsSettings(queue="nix")).limits(run))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "spool"
    made.mkdir(mode=0o700)
    return made


def job(vnodes: str = "(n1:ncpus=2)+(n[0]:ncpus=2+n[1]:mem=3)", **more: object) -> SimpleNamespace:
    return SimpleNamespace(**{"id": "7.pbs", "exec_vnode": vnodes, "run_count": 1, "queue": "workq", **more})


def test_the_hook_of_pbs_tells_what_happens(folder: Path) -> None:
    spool = HookSpool(folder)
    spool.open()
    for name in EVENTS:
        assert run_hook(folder, name, job()) == []
    heard = spool.look(0.0)
    assert sorted(one.what for one in heard) == ["end", "ending", "start"]
    assert {(one.job, one.restart, one.nodes) for one in heard} == {("7.pbs", 1, ("n1", "n[0]", "n[1]"))}
    assert [path.name for path in folder.iterdir()] == [READER]


def test_the_hook_of_pbs_accepts_in_every_case(folder: Path, tmp_path: Path) -> None:
    assert run_hook(folder, "EXECJOB_END", job()) == [], "there is no reader"
    assert list(folder.iterdir()) == []
    assert run_hook(tmp_path / "missing", "EXECJOB_END", job()) == []
    HookSpool(folder).open()
    (logged,) = run_hook(folder, "EXECJOB_END", None)
    assert "AttributeError" in logged
    (logged,) = run_hook(folder, "EXECJOB_END", job(run_count="x"))
    assert "ValueError" in logged
    (logged,) = run_hook(folder, "EXECJOB_END", job(queue="\u00e9"))
    assert "UnicodeEncodeError" in logged
    (logged,) = run_hook(folder, "EXECJOB_END", job(id="../../up"))
    assert "Error" in logged
    assert HookSpool(folder).look(0.0) == []


def test_the_hook_of_pbs_needs_no_more_than_an_old_python() -> None:
    tree = ast.parse(HOOK.read_text(), feature_version=(3, 6))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"os", "socket", "pathlib", "typing", "pbs"}


def test_recorded_events_of_a_real_pbs_are_reported(folder: Path) -> None:
    spool = HookSpool(folder)
    spool.open()
    wanted = []
    kinds = {"EXECJOB_BEGIN": "start", "EXECJOB_EPILOGUE": "ending", "EXECJOB_END": "end"}
    heard = []
    for line in site_data("scheduler-samples/pbs_hook_events_sample.txt").read_text().splitlines():
        _, event, *cells = line.split(" ")
        cell = dict(one.split("=", 1) for one in cells)
        about = job(cell["exec_vnode"], id=cell["job"])
        assert run_hook(folder, event, about) == []
        heard += spool.look(0.0)
        if event in kinds:
            wanted.append((kinds[event], cell["job"], tuple(cell["vnode_list"].split(","))))
    assert [(one.what, one.job, one.nodes) for one in heard] == wanted
    assert len(wanted) > 10


def test_recorded_jobs_of_a_real_pbs_have_their_nodes() -> None:
    seen = set()
    for line in site_data("scheduler-samples/pbs_accounting_sample.txt").read_text().splitlines():
        _, kind, _, text = line.split(";", 3)
        cell = dict(pair.split("=", 1) for pair in text.split(" ") if "=" in pair)
        if kind != "E":
            continue
        assert pbs.host(cell) == "pbsnode"
        assert pbs.vnodes(cell["exec_vnode"])[0] == "pbsnode"
        assert pbs.moment(cell["start"]) == float(cell["start"])
        seen.update(pbs.vnodes(cell["exec_vnode"]))
    assert "pbsnode[0]" in seen


def test_what_openpbs_23_printed_is_read() -> None:
    """Recorded on a server built from its source: three nodes, two pilots that run and one that was preempted."""
    printed = {file.stem: file.read_text() for file in (Path(__file__).parents[3] / "data/openpbs-23.06.06").iterdir()}

    async def run(command: Command) -> str:
        return printed[{"qmgr": "sched", "qstat": "qstat-Qf"}[command.argv[0]]]

    assert asyncio.run(pbs.Pbs(pbs.PbsSettings(queue="preempt")).limits(run)) == PilotLimits()
    with pytest.raises(NotAvailable, match="its jobs preempt others'"):
        asyncio.run(pbs.Pbs(pbs.PbsSettings(queue="workq")).limits(run))
    assert pbs.read_idle(pbs.read(printed["pbsnodes-a"])) == pbs.read_idle(pbs.read_json(printed["pbsnodes-json"]))
    assert pbs.read_idle(pbs.read(printed["pbsnodes-a"])) == set(), "a pilot is on each node"
    found = [
        (one.state, one.node, one.mark.partition(".")[0])
        for one in pbs.read_pilots(pbs.read_jobs(printed["qstat-dsv"]))
    ]
    runs, taken = PilotState.RUNNING, PilotState.TAKEN
    assert found == [(runs, "n1", "bftrain-jane"), (runs, "n2", "bftrain-jane"), (taken, "n1", "bftrain-jane")]
