"""LSF's commands are built and read as its documentation has them, and queues that would delay others are refused."""

from __future__ import annotations

import asyncio
import getpass
import json
import time
from pathlib import Path

import pytest

from bftrain.errors import BadConfig, NotAvailable
from bftrain.live.schedulers import lsf, lsf_queues
from bftrain.live.schedulers.lsf_times import length_s, moment, read_reservations
from bftrain.live.schedulers.pilot_backend import LATER, Command, CommandFailed, PilotOrder, PilotState, Trouble
from bftrain.live.schedulers.pilot_backend import environment as for_commands
from bftrain.live.schedulers.port import AgentOrder, Scheduler, Site
from tests.helpers.fake_lsf import PARAMETERS, QUEUES

SITE = Site(name="t", folder=Path("/nowhere"))
ORDER = PilotOrder(name="bftrain-t", mark="bftrain-t.12ab", script="#!/bin/sh\n", seconds=3590.0, rank=1)
NOW = time.mktime((2026, 11, 26, 10, 0, 0, 0, 0, -1))  # a Thursday
HOSTS = "HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP USUSP RSV\nn1 ok - 16 0 0 0 0 0\nn2 closed_Excl - 16 16 16 0 0 0\n"
HOSTS += "n3 ok - 16 4 0 4 0 0\nn4 unavail - 16 0 0 0 0 0\n"


def local(*parts: int) -> float:
    return time.mktime((*parts, 0, 0, -1))  # type: ignore[arg-type]  # nine numbers


def of_lsf(**settings: object) -> lsf.Lsf:
    return lsf.Lsf(lsf.LsfSettings(queue="idle", **settings))  # type: ignore[arg-type]  # settings of any kind


class Site10:
    """Answers commands as an LSF 10.1 does; attributes are what its administrator can change."""

    def __init__(self, *, policies: str = "PREEMPTABLE EXCLUSIVE", status: str = "Open:Active") -> None:
        self.queues = QUEUES.format(policies=policies, status=status, controls="TERMINATE_WHEN:  PREEMPT\n")
        self.parameters = PARAMETERS
        self.asked: list[tuple[str, ...]] = []

    async def __call__(self, command: Command) -> str:
        self.asked.append(command.argv)
        return {"bqueues": self.queues, "bparams": self.parameters, "bhosts": HOSTS}.get(command.argv[0], "")


def test_limits_are_those_of_the_queue() -> None:
    site, batch = Site10(), of_lsf()
    limits = asyncio.run(batch.limits(site))
    assert (limits.running, limits.longest_s, limits.submitted) == (500, 720 * 60, LATER)
    assert limits.nodes == {"n1", "n2", "n3", "n4"}
    assert limits.remarks == ()
    assert asyncio.run(batch.idle(site)) == {"n1"}
    assert site.asked[-1] == ("bhosts", "-w", "compute"), "the group of hosts of the queue"
    assert asyncio.run(of_lsf(slots=16).limits(site)).running == 31


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("QUEUE: idle", "QUEUE: other"), "no such queue"),
        (("USERS: all\nHOSTS:  compute/", "USERS: jane joe\nHOSTS:  compute/"), "takes no jobs of the user ann"),
        (("PREEMPTABLE EXCLUSIVE", "EXCLUSIVE"), "never preempts pilots"),
        (("PREEMPTABLE EXCLUSIVE", "PREEMPTABLE"), "no whole hosts"),
        (("PREEMPT_JOBTYPE = EXCLUSIVE", "PREEMPT_JOBTYPE = BACKFILL"), "whole host, so others would wait"),
    ],
)
def test_a_queue_that_can_never_work_is_refused(
    change: tuple[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    site = Site10()
    site.queues, site.parameters = site.queues.replace(*change), site.parameters.replace(*change)
    with pytest.raises(NotAvailable, match=says) as refused:
        asyncio.run(of_lsf().limits(site))
    assert refused.value.exit_code == 4
    assert not isinstance(refused.value, CommandFailed), "it is no failure that passes"
    assert refused.value.fix


@pytest.mark.parametrize("users", ["all", "all ~bob", "jane physics/", "jane", ""])
def test_users_of_a_queue_are_known_without_groups(users: str) -> None:
    queue = lsf_queues.read_queues(Site10().queues.replace("USERS: all", f"USERS: {users}"))["idle"]
    assert queue.takes("jane")
    assert queue.takes("joe") is (users != "jane")


@pytest.mark.parametrize(
    ("preemptive", "works"),
    [
        ("PREEMPTIVE", True),
        ("PREEMPTIVE[short idle+2]", True),
        ("PREEMPTIVE(idle)", True),
        ("PREEMPTIVE[short]", False),
    ],
)
def test_a_queue_of_a_higher_priority_may_be_the_one_that_preempts(preemptive: str, *, works: bool) -> None:
    site = Site10(policies="EXCLUSIVE")
    site.queues = site.queues.replace("FAIRSHARE EXCLUSIVE", f"FAIRSHARE {preemptive}")
    if works:
        assert asyncio.run(of_lsf().limits(site)).remarks == ()
    else:
        with pytest.raises(NotAvailable, match="never preempts"):
            asyncio.run(of_lsf().limits(site))


def test_a_pilot_of_all_slots_needs_no_exclusive_queue() -> None:
    site = Site10(policies="PREEMPTABLE")
    site.parameters = ""
    assert asyncio.run(of_lsf(slots=16).limits(site)).nodes


def test_what_is_odd_of_a_queue_is_reported() -> None:
    site = Site10(policies="PREEMPTABLE PREEMPTIVE EXCLUSIVE", status="Closed:Inact_Win")
    site.queues = site.queues.replace("TERMINATE_WHEN:  PREEMPT", "")
    remarks = asyncio.run(of_lsf().limits(site)).remarks
    assert [text.removeprefix("jobs of ").removeprefix("queue 'idle' ")[:16] for text in remarks] == [
        "starts no jobs n",
        "takes no jobs no",
        "preempt others'",
        "suspends preempt",
    ]


@pytest.mark.parametrize("said", ["", "batch system daemon\n"])
def test_queues_that_cannot_be_read_are_a_failure_that_passes(said: str) -> None:
    site = Site10()
    site.queues = said
    with pytest.raises(CommandFailed, match="cannot be read"):
        asyncio.run(of_lsf().limits(site))


@pytest.mark.parametrize(
    ("hosts", "asked"),
    [("all", ()), ("all ~n9", ()), ("others", ()), ("n1+2 n2 gpu/", ("n1", "n2", "gpu")), ("none", ())],
)
def test_hosts_of_a_queue_are_asked_for_by_name(hosts: str, asked: tuple[str, ...]) -> None:
    queue = lsf_queues.read_queues(Site10().queues.replace("compute/", hosts))["idle"]
    assert queue.hosts == asked


def bjobs(*records: dict[str, str]) -> str:
    return json.dumps({"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records})


def test_jobs_are_read() -> None:
    runs = {"JOBID": "7", "STAT": "RUN", "EXEC_HOST": "16*n1", "RUN_TIME": "120 second(s)", "RUNTIMELIMIT": "60.0/n1"}
    waits = {"JOBID": "8", "STAT": "PEND", "EXEC_HOST": "-", "START_TIME": "-", "JOB_DESCRIPTION": "bftrain-t.1"}
    ended = {
        "JOBID": "9",
        "STAT": "DONE",
        "EXEC_HOST": "n2:n2",
        "START_TIME": "Nov 26 09:10",
        "RUN_TIME": "30 second(s)",
    }
    said = bjobs(runs | {"JOB_DESCRIPTION": "bftrain-t.12ab", "EXIT_CODE": ""}, waits, ended)
    first, second, third = lsf.read_pilots(said, NOW)
    assert (first.id, first.state, first.node, first.mark) == ("7", PilotState.RUNNING, "n1", "bftrain-t.12ab")
    assert (first.start_s, first.end_s) == (NOW - 120, NOW - 120 + 3600)
    assert (second.state, second.node, second.start_s, second.end_s) == (PilotState.WAITING, "", 0.0, None)
    begun = local(2026, 11, 26, 9, 10, 0)
    assert (third.state, third.node, third.start_s, third.end_s) == (PilotState.LEFT, "n2", begun, begun + 30)


@pytest.mark.parametrize(
    ("job", "state"),
    [
        ({"STAT": "PSUSP"}, PilotState.WAITING),
        ({"STAT": "SSUSP"}, PilotState.STOPPED),
        ({"STAT": "USUSP"}, PilotState.STOPPED),
        ({"STAT": "UNKWN"}, PilotState.ENDING),
        ({"STAT": "ZOMBI"}, PilotState.ENDING),
        ({"STAT": "EXIT", "EXIT_CODE": "64"}, PilotState.FAILED),
        ({"STAT": "EXIT", "EXIT_CODE": "130"}, PilotState.TAKEN),
        ({"STAT": "EXIT", "EXIT_CODE": "1", "EXIT_REASON": "TERM_PREEMPT: job killed"}, PilotState.TAKEN),
        ({"STAT": "EXIT", "EXIT_REASON": "TERM_OWNER: job killed by owner"}, PilotState.TAKEN),
        ({"STAT": "EXIT", "EXIT_REASON": "TERM_RUNLIMIT: job killed"}, PilotState.TAKEN),
        ({"STAT": "EXIT", "EXIT_REASON": "TERM_CWD_NOTEXIST: no folder"}, PilotState.FAILED),
        ({"STAT": "EXIT", "EXIT_REASON": "TERM_MEMLIMIT: job killed"}, PilotState.FAILED),
    ],
)
def test_states_are_those_of_the_table(job: dict[str, str], state: PilotState) -> None:
    (pilot,) = lsf.read_pilots(bjobs({"JOBID": "1", **job}), NOW)
    assert pilot.state is state


def pilots(said: str | Exception) -> object:
    async def run(_: Command) -> str:
        if isinstance(said, Exception):
            raise said
        return said

    return asyncio.run(of_lsf().pilots(run, "bftrain-t"))


@pytest.mark.parametrize(
    "said",
    [
        CommandFailed(("bjobs",), 255, "Job <bftrain-t> is not found"),
        CommandFailed(("bjobs",), 255, "No unfinished job found"),
        bjobs(),
        bjobs({"JOBID": "1", "ERROR": "Job <1> is not found"}),
        f"a notice of the site\n{bjobs()}",
    ],
)
def test_no_pilots_are_no_failure(said: str | Exception) -> None:
    assert pilots(said) == []


@pytest.mark.parametrize("said", ["", "{", '{"RECORDS": 3}', '{"JOBS": 0}', '{"RECORDS": [{"JOBID": 7}]}'])
def test_nonsense_is_not_taken_for_no_pilots(said: str) -> None:
    with pytest.raises(CommandFailed, match="cannot be read"):
        pilots(said)


def test_bsub_takes_one_whole_host_and_reads_the_script() -> None:
    batch = of_lsf(project="climate", options=("-G", "physics"))
    words = " ".join(batch.submission(ORDER).argv)
    assert words == ("bsub -J bftrain-t -Jd bftrain-t.12ab -q idle -o /dev/null -n 1 -x -W 60 -P climate -G physics"), (
        "no priority before it is known that jobs have one"
    )
    assert batch.submission(ORDER).stdin == "#!/bin/sh\n"
    asyncio.run(batch.limits(Site10()))
    assert " -sp 49 " in " ".join(batch.submission(ORDER).argv), "half of the highest, and less for shorter ones"
    some = PilotOrder(name="j", mark="m", script="", seconds=60.0, avoid=("n-1", "n2"))
    words = " ".join(of_lsf(slots=16).submission(some).argv)
    assert "-n 16 -R span[hosts=1] -W 1" in words
    assert "-R select[hname!='n-1' && hname!='n2']" in words
    assert "node=${LSB_HOSTS%% *}" in batch.script(AgentOrder(argv=("agent",)), SITE)


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        ("nix: No such queue. Job not submitted.", "refused"),
        ("User cannot use the queue. Job not submitted.", "refused"),
        ("idle: Queue has been closed. Job not submitted.", "refused"),
        ("Bad resource requirement syntax. Job not submitted.", "refused"),
        ("Request aborted by esub. Job not submitted.", "refused"),
        ("cannot be run: Permission denied", "refused"),
        ("User <jane>: Pending job threshold reached. Retrying in 60 seconds...", "limit"),
        ("RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted.", "limit"),
        ("Cannot connect to LSF. Please wait ...", "away"),
        ("LSF is down. Please wait ...", "away"),
        ("batch daemon not responding ... still trying", "away"),
        ("did not answer within 20 s", "away"),
        ("no version has said this yet", "away"),
        ("Job <7>: No matching job found", "gone"),
        ("Job <7>: Job has already finished", "gone"),
        ("Job <bftrain-t> is not found", "gone"),
    ],
)
def test_what_failed_says_what_follows(said: str, trouble: str) -> None:
    assert of_lsf().trouble(CommandFailed(("bsub",), 255, said)) is Trouble(trouble)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "queue"),
        ({"queue": "q", "slot": 1}, "did you mean"),
        ({"queue": "q", "slots": -1}, "slots"),
        ({"queue": ""}, "q"),
        ({"queue": "q", "options": ["-q", "main"]}, "use queue"),
    ],
)
def test_settings_of_a_site_with_lsf_are_held_to_their_rules(table: dict[str, object], says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        lsf.make(table, SITE)
    assert isinstance(lsf.make({"queue": "idle"}, SITE), Scheduler)


def test_a_surrounding_job_of_lsf_changes_no_command() -> None:
    given = {"LSF_ENVDIR": "/etc/lsf", "LSB_JOBID": "7", "LSB_DEFAULTQUEUE": "q", "BSUB_BLOCK": "1", "PATH": "/bin"}
    assert for_commands(given) == {"LSF_ENVDIR": "/etc/lsf", "PATH": "/bin"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("57 second(s)", 57), ("00:01:30", 90), ("24:00", 86_400), ("1440.0/n1", 86_400), ("-", 0), ("", 0)],
)
def test_lengths(text: str, seconds: float) -> None:
    assert length_s(text, 60 if "second" not in text else 1) == seconds


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("Nov 26 09:58", (2026, 11, 26, 9, 58, 0)),
        ("Nov  1 09:58 L", (2026, 11, 1, 9, 58, 0)),
        ("Dec 31 23:00", (2025, 12, 31, 23, 0, 0)),
        ("Nov 26 09:58:07 2026", (2026, 11, 26, 9, 58, 7)),
    ],
)
def test_times_of_the_past_have_no_year(text: str, at: tuple[int, ...]) -> None:
    assert moment(text, NOW) == local(*at)
    assert moment("soon", NOW) == moment("-", NOW) == moment("Foo 26 09:58", NOW) == 0.0


def test_reservations_are_plans() -> None:
    said = """\
RSVID       TYPE    USER   NCPUS      RSV_HOSTS           TIME_WINDOW
user1#0     user    user1   0/1024    hostA:0/1024   11/27/6/0-11/27/8/0
user1#1     user    user1   0/1024    hostA:0/1024   12/1/6/0-12/2/8/0
user2#0     user    user2  0/1024     hostB:0/1024           9:0-11:0 *
groupA#0   group   groupA  -/2048     hostC:-/1024         0:23:0-1:3:0 *
                                      hostD:0/1024
system#0     sys   system   1024      hostE:0/1024       11/20/18/0-11/21/20/0
system#1     sys   system   1024      hostF:0/1024       12/31/18/0-1/2/20/0
"""
    assert read_reservations(said, NOW) == {
        "hostA": local(2026, 11, 27, 6, 0, 0),
        "hostB": local(2026, 11, 26, 9, 0, 0),
        "hostC": local(2026, 11, 29, 23, 0, 0),
        "hostD": local(2026, 11, 29, 23, 0, 0),
        "hostF": local(2026, 12, 31, 18, 0, 0),
    }
    assert read_reservations(said, local(2027, 1, 1, 0, 0, 0))["hostF"] == local(2026, 12, 31, 18, 0, 0)
    assert read_reservations("No reservation found\n", NOW) == {}
