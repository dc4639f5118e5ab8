"""What Slurm and PBS are asked, in which order, and what follows from what they say."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig, NotAvailable
from bftrain.live.schedulers import slurm_limits
from tests.helpers.schedulers import (
    LATER,
    AgentOrder,
    Command,
    CommandFailed,
    PilotOrder,
    PilotState,
    Scheduler,
    Site,
    SlurmSettings,
    pbs,
    slurm,
)

SITE = Site(name="t", folder=Path("/nowhere"))
ORDER = PilotOrder(name="bftrain-t", mark="bftrain-t.12ab", script="#!/bin/sh\n", seconds=3600.0)
AGENT = AgentOrder(argv=("agent", "--node", "{node}"))


class Said:
    """Answers commands: by the words they begin with, the first that fits; an exception is raised."""

    def __init__(self, **answers: str | Exception) -> None:
        self.answers = {words.replace("_", " "): answer for words, answer in answers.items()}
        self.asked: list[tuple[str, ...]] = []

    async def __call__(self, command: Command) -> str:
        self.asked.append(command.argv)
        words = " ".join(command.argv)
        answer = next((answer for begin, answer in self.answers.items() if words.startswith(begin)), "")
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def programs(self) -> list[str]:
        return [argv[0] for argv in self.asked]


def failed(said: str, printed: str = "") -> CommandFailed:
    return CommandFailed(("it",), 1, said, printed)


def of_slurm(**settings: Any) -> slurm.Slurm:  # noqa: ANN401 - settings of any kind
    return slurm.Slurm(SlurmSettings(**{"partition": "pilot", **settings}))


def of_pbs() -> pbs.Pbs:
    return pbs.Pbs(pbs.PbsSettings(queue="idle"))


def test_many_pilots_are_one_array_if_the_site_has_arrays() -> None:
    said = Said()
    assert asyncio.run(of_slurm().submit(said, ORDER, 5)) == 5
    assert asyncio.run(of_slurm(arrays=False).submit(said, ORDER, 5)) == 1
    assert ["--array=1-5" in argv for argv in said.asked] == [True, False]


def test_slurms_script_names_the_node_as_slurm_knows_it() -> None:
    text = of_slurm().script(AGENT, SITE)
    assert "node=$SLURMD_NODENAME" in text
    assert text.splitlines()[-1] == 'exec agent --node "$node"'


def test_pilots_that_are_gone_already_are_no_trouble_to_cancel() -> None:
    said = Said(scancel=failed("scancel: error: Kill job error on job id 7: Invalid job id specified"))
    asyncio.run(of_slurm().cancel(said, [f"{number}" for number in range(501)]))
    assert [len(argv) - 1 for argv in said.asked] == [500, 1], "as many as fit on a command line"
    with pytest.raises(CommandFailed, match="Unable to contact"):
        asyncio.run(of_slurm().cancel(Said(scancel=failed("Unable to contact slurm controller")), ["7"]))


def test_slurm_is_asked_for_idle_nodes_and_plans() -> None:
    said = Said(sinfo="nid0001|idle\nnid0002|idle~\n", squeue="wrap|1795287431|nid[0001-0002]\n")
    assert asyncio.run(of_slurm().idle(said)) == {"nid0001"}
    assert asyncio.run(of_slurm().plans(said, "bftrain-t")) == dict.fromkeys(("nid0001", "nid0002"), 1795287431.0)
    assert "--partition=pilot" in said.asked[0]
    assert "--start" in said.asked[1]
    assert not any(word.startswith("--partition") for word in slurm.sinfo("").argv)


def test_slurms_limits_are_those_of_its_partition() -> None:
    said = Said(
        scontrol_show_config="ClusterName             = physics\n"
        "PreemptType = preempt/partition_prio\nPreemptMode = CANCEL\nMaxJobCount = 10000\n",
        scontrol_show_partition="PartitionName=pilot Nodes=nid[1-4] MaxTime=1-00:00:00 PreemptMode=CANCEL GraceTime=0\n"
        "PartitionName=main PriorityTier=2 Default=YES",
    )
    limits = asyncio.run(of_slurm().limits(said))
    assert (limits.longest_s, limits.submitted, limits.running) == (86_400.0, 10_000.0, LATER)
    assert (limits.nodes, limits.cluster) == ({"nid1", "nid2", "nid3", "nid4"}, "physics")
    assert limits.remarks == ()
    assert "sacctmgr" not in said.programs, "there is no accounting to ask"


def test_limits_of_an_account_hold_and_who_may_not_ask_is_not_stopped() -> None:
    config = (
        "PreemptType = preempt/qos\nPreemptMode = CANCEL\nAccountingStorageType = accounting_storage/slurmdbd\n"
        "PreemptExemptTime = 00:01:00\n"
    )
    qos = "Name|PreemptMode|GraceTime|MaxJobsPU|MaxTRESPU\nlow|cancel|00:00:30|20|cpu=400,node=10\n"
    said = Said(
        scontrol_show_config=config,
        **{"sacctmgr_--parsable2_show_assoc": failed("no"), "sacctmgr_--parsable2_show_qos": qos},
    )
    limits = asyncio.run(slurm_limits.ask_limits(said, SlurmSettings(qos="low", account="physics"), 0.0))
    assert limits.running == 10
    assert [text.split(" is ")[0] for text in limits.remarks] == ["GraceTime", "PreemptExemptTime"]
    assoc = next(argv for argv in said.asked if "assoc" in argv)
    assert {f"user={getpass.getuser()}", "account=physics"} < set(assoc)


def test_a_controller_that_is_away_is_not_taken_for_a_partition_that_is_missing() -> None:
    said = Said(
        scontrol_show_config="PreemptType = preempt/partition_prio\n",
        scontrol_show_partition=failed("Unable to contact slurm controller"),
    )
    with pytest.raises(CommandFailed, match="Unable to contact"):
        asyncio.run(of_slurm().limits(said))


def test_pbs_submits_one_by_one_and_its_script_names_the_host() -> None:
    said = Said()
    assert asyncio.run(of_pbs().submit(said, ORDER, 5)) == 1
    assert said.programs == ["qsub"]
    assert "node=${node%%.*}" in of_pbs().script(AGENT, SITE)


def queues(sched: str = "    preempt_order = D\n", main: int = 150, **attributes: object) -> Said:
    idle = {"started": "True", "enabled": "True", **attributes}
    lines = "".join(f"    {name} = {value}\n" for name, value in idle.items())
    return Said(
        qstat=f"Queue: workq\n    Priority = {main}\n\nQueue: idle\n{lines}",
        qmgr=f"Sched default\n{sched}" if sched else "",
    )


def test_what_a_queue_allows_is_read_and_what_is_odd_is_reported() -> None:
    rules = {"max_run": "[u:PBS_GENERIC=3]", "max_queued": "[o:PBS_ALL=9]", "resources_max.walltime": "12:00:00"}
    limits = asyncio.run(of_pbs().limits(queues(**rules)))
    assert (limits.running, limits.submitted, limits.longest_s, limits.remarks) == (3, 9, 43_200, ())
    odd = asyncio.run(of_pbs().limits(queues("    preempt_order = SCR\n", started="False", enabled="False")))
    assert [text.partition(" (")[0].removeprefix("queue 'idle' ") for text in odd.remarks] == [
        "starts no jobs now",
        "takes no jobs now",
        "PBS first suspends or checkpoints pilots, whose memory stays a while",
    ]
    assert odd.longest_s == LATER
    with pytest.raises(CommandFailed, match="cannot connect"):
        asyncio.run(of_pbs().limits(Said(qstat=failed("cannot connect to server"))))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (queues(main=0), "never preempts its jobs"),
        (queues(main=149), "never preempts its jobs"),
        (queues("    preempt_queue_prio = 200\n", main=199), "never preempts its jobs"),
        (queues(Priority=150), "its jobs preempt others'"),
        (queues("    preempt_queue_prio = 20\n", Priority=20), "its jobs preempt others'"),
    ],
)
def test_a_queue_of_pbs_whose_jobs_are_not_preempted_is_refused(said: Said, message: str) -> None:
    with pytest.raises(NotAvailable, match=message):
        asyncio.run(of_pbs().limits(said))


def test_pbs_may_preempt_by_other_rules_than_the_priorities_of_queues() -> None:
    said = queues("    preempt_prio = express_queue, normal_jobs, queue_softlimits\n    preempt_order = R\n", main=0)
    assert asyncio.run(of_pbs().limits(said)).remarks == ()
    said = queues(main=0)
    said.answers["qmgr"] = failed("qmgr: cannot be run")
    (remark,) = asyncio.run(of_pbs().limits(said)).remarks
    assert "is not known" in remark


def test_pilots_that_end_are_looked_up_among_finished_jobs_once() -> None:
    batch, said = of_pbs(), Said(qselect="7.pbs\n", qstat="Job Id: 7.pbs|job_state=R\n")
    assert [one.state for one in asyncio.run(batch.pilots(said, "t"))] == [PilotState.RUNNING]
    ending = Said(**{"qstat_-x": "Job Id: 7.pbs|job_state=E\n"})
    assert [one.state for one in asyncio.run(batch.pilots(ending, "t"))] == [PilotState.ENDING]
    over = Said(**{"qstat_-x": "Job Id: 7.pbs|job_state=F|substate=91\n"})
    for _ in range(2):
        assert [one.state for one in asyncio.run(batch.pilots(over, "t"))] == [PilotState.TAKEN]
    assert over.asked.count(("qstat", "-x", "-f", "-F", "dsv", "7.pbs")) == 1


def test_pilots_are_listed_by_one_request_however_many_they_are() -> None:
    """Naming jobs takes qstat two of the ports of root for each, and there are only some hundred of them."""
    listed = "".join(f"Job Id: {number}.pbs|job_state=Q\n" for number in range(50))
    said = Said(qselect="".join(f"{number}.pbs\n" for number in range(50)), qstat=listed)
    assert len(asyncio.run(of_pbs().pilots(said, "t"))) == 50
    assert said.asked[1:] == [("qstat", "-f", "-F", "dsv", "idle")]


def test_any_other_failure_to_list_pbs_jobs_is_one() -> None:
    with pytest.raises(CommandFailed, match="End of File"):
        asyncio.run(of_pbs().pilots(Said(qselect=failed("End of File")), "bftrain-t"))
    with pytest.raises(CommandFailed, match="No route"):
        asyncio.run(of_pbs().pilots(Said(qselect="7.pbs\n", qstat=failed("No route to host")), "bftrain-t"))


def test_jobs_that_went_while_they_were_listed_are_left_out() -> None:
    said = Said(qselect="7.pbs\n8.pbs\n", qstat=failed("qstat: Unknown Job Id 7.pbs", "Job Id: 8.pbs|job_state=Q\n"))
    assert [one.id for one in asyncio.run(of_pbs().pilots(said, "bftrain-t"))] == ["8.pbs"]


def test_deleting_what_is_gone_is_no_trouble() -> None:
    said = Said(qdel=failed("qdel: Unknown Job Id 7.pbs"))
    asyncio.run(of_pbs().cancel(said, ["7.pbs"]))
    assert said.asked == [("qdel", "7.pbs")]
    with pytest.raises(CommandFailed, match="Unauthorized"):
        asyncio.run(of_pbs().cancel(Said(qdel=failed("qdel: Unauthorized Request")), ["7.pbs"]))


def test_pbs_is_asked_for_free_nodes_and_plans() -> None:
    nodes = "n1\n    state = free\n\nn2\n    state = free\n    jobs = 1.pbs/0\n"
    job = "Job Id: 1.pbs|estimated.start_time=1795287431|estimated.exec_vnode=(n1:ncpus=4)\n"
    said = Said(pbsnodes=nodes, qselect="1.pbs\n" * 51, qstat=job)
    assert asyncio.run(of_pbs().idle(said)) == {"n1"}
    assert asyncio.run(of_pbs().plans(said, "bftrain-t")) == {"n1": 1795287431.0}
    assert said.asked[-1].count("1.pbs") == 50, "the first ones will do"
    quiet = Said()
    assert asyncio.run(of_pbs().plans(quiet, "bftrain-t")) == {}
    assert quiet.programs == ["qselect"], "no job waits, so there is nothing to ask"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put programs onto PATH, which has nothing else: each prints a text, and notes how it was called."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(**texts: str) -> Path:
        for name, text in texts.items():
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\necho \"$@\" >>'{tmp_path}/asked'\ncase $* in *json*) {text} ;; esac\n")
            program.chmod(0o755)
        return tmp_path / "asked"

    return put


def looks(scheduler: Scheduler) -> frozenset[str] | None:
    return asyncio.run(scheduler.look())  # type: ignore[arg-type]  # it is a coroutine


def test_nodes_that_slurm_calls_idle_are_ours(commands: Callable[..., Path], tmp_path: Path) -> None:
    scheduler = slurm.make_nodes({"partition": "batch"}, SITE)
    assert not scheduler.available().ok
    assert scheduler.available().reason == "no command sinfo here"
    asked = commands(sinfo="")
    (tmp_path / "sinfo").write_text(f"#!/bin/sh\necho \"$@\" >>'{asked}'\necho 'nid0001|idle'\necho 'nid0002|idle*'\n")
    assert scheduler.available().ok
    assert looks(slurm.make_nodes({"partition": "batch"}, SITE)) == {"nid0001"}
    assert "--partition=batch" in asked.read_text()


def test_nodes_that_pbs_calls_free_are_ours_in_both_forms(commands: Callable[..., Path], tmp_path: Path) -> None:
    assert pbs.make_nodes({}, SITE).available().fix == pbs.REMEDY
    commands(pbsnodes='echo \'{"nodes": {"n1": {"state": "free"}}}\'')
    assert looks(pbs.make_nodes({}, SITE)) == {"n1"}
    (tmp_path / "pbsnodes").write_text("#!/bin/sh\nprintf 'n2\\n    state = free\\n'\n")
    scheduler = pbs.make_nodes({"json": False}, SITE)
    assert scheduler.available().ok
    assert looks(scheduler) == {"n2"}
    (tmp_path / "pbsnodes").write_text("#!/bin/sh\nexit 3\n")
    assert looks(scheduler) is None, "who is away says nothing"


@pytest.mark.parametrize(
    ("make", "name"), [(slurm.make_nodes, "partition"), (pbs.make_nodes, "json"), (slurm.make_nodes, "poll_s")]
)
def test_settings_of_who_watches_are_held_to_their_rules(make: Callable[..., Scheduler], name: str) -> None:
    with pytest.raises(BadConfig, match=name):
        make({name: -1}, SITE)
    with pytest.raises(BadConfig, match="did you mean"):
        make({f"{name}s": 1}, SITE)


@pytest.mark.parametrize(("batch", "programs"), [(of_slurm(), slurm.PROGRAMS), (of_pbs(), pbs.PROGRAMS)])
def test_all_commands_that_are_missing_are_named(
    batch: slurm.Slurm | pbs.Pbs, programs: Sequence[str], commands: Callable[..., Path]
) -> None:
    first, *others = programs
    assert batch.available().reason == f"no command {', '.join(programs)} here"
    commands(**dict.fromkeys(others, "true"))
    assert batch.available().reason == f"no command {first} here"
    assert batch.available().fix
    commands(**{first: "true"})
    assert batch.available().ok
