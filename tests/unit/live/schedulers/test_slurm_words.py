"""Slurm's commands are built and read right; what is read here was printed by a real Slurm 22.05."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from bftrain import BadConfig, BadValue, NotAvailable
from bftrain.live.schedulers import slurm_limits
from bftrain.live.schedulers.pilot_backend import pilot_script
from tests.helpers.schedulers import (
    LATER,
    AgentOrder,
    Command,
    CommandFailed,
    PilotLimits,
    PilotOrder,
    PilotState,
    Site,
    SlurmSettings,
    Trouble,
    slurm,
)

ORDER = PilotOrder(name="bftrain-t", mark="bftrain-t.12ab", script="#!/bin/sh\n", seconds=86400)
SITE = Site(name="t", folder=Path("/nowhere"))

LISTED = """\
13_3|13|PENDING|1795287316|1795294516|bftrain-t.12ab||Nodes required for job are DOWN, DRAINED or reserved for others
13_1|14|RUNNING|1795287256|1795287316|bftrain-t.12ab|nid0003|None
1_2|3|PREEMPTED|1795287000|1795287002|bftrain-t.12ab|nid0002|None
7|7|COMPLETING|1795287000|N/A|bftrain-t.12ab|nid0001|None
9|9|FAILED|1795287000|1795287001|(null)|nid0001|NonZeroExitCode
10|10|SOMETHING_NEW|N/A|NONE|bftrain-t.12ab||None
"""


def built(order: PilotOrder = ORDER, count: int = 1, **settings: object) -> Command:
    return slurm.Slurm(SlurmSettings(**{"partition": "pilot", **settings})).sbatch(order, count)  # type: ignore[arg-type]  # rows of a test


def test_sbatch_takes_one_whole_node_and_reads_the_script() -> None:
    command = built()
    assert command.argv == (
        "sbatch",
        "--parsable",
        "--job-name=bftrain-t",
        "--comment=bftrain-t.12ab",
        "--partition=pilot",
        "--nodes=1",
        "--ntasks=1",
        "--exclusive",
        "--no-requeue",
        "--output=/dev/null",
        "--input=/dev/null",
        "--time=1440",
        "--nice=0",
    )
    assert command.stdin == "#!/bin/sh\n"


def test_sbatch_says_all_that_the_site_wants() -> None:
    order = PilotOrder(name="n", mark="m", script="", seconds=601, rank=2, avoid=("nid0001", "nid0002", "gpu7"))
    words = built(order, 5, qos="scavenger", account="a", options=("--gres=gpu:4",)).argv
    assert {"--qos=scavenger", "--account=a", "--time=11", "--nice=20000", "--array=1-5"} < set(words)
    assert "--exclude=gpu7,nid[0001-0002]" in words
    assert words[-1] == "--gres=gpu:4"


def test_what_squeue_lists_is_read() -> None:
    waits, runs, taken, ending, failed, odd = slurm.read_pilots(LISTED)
    assert (waits.id, waits.number, waits.state, waits.node) == ("13_3", "13", PilotState.WAITING, "")
    assert (waits.mark, waits.start_s) == ("bftrain-t.12ab", 1795287316.0)
    assert (runs.id, runs.number, runs.state, runs.node) == ("13_1", "14", PilotState.RUNNING, "nid0003")
    assert (runs.start_s, runs.end_s) == (1795287256.0, 1795287316.0)
    assert (taken.state, ending.state, failed.state) == (PilotState.TAKEN, PilotState.ENDING, PilotState.FAILED)
    assert ending.end_s is None
    assert odd.state is PilotState.ENDING, "neither used nor replaced"
    assert list(slurm.read_pilots("")) == []


def test_a_list_that_is_cut_off_is_not_taken_for_fewer_pilots() -> None:
    async def run(_: Command) -> str:
        return LISTED + "11|11|PEND"

    with pytest.raises(CommandFailed, match="cannot be read"):
        asyncio.run(slurm.Slurm(SlurmSettings(partition="p")).pilots(run, "bftrain-t"))


def test_idle_nodes_are_those_without_a_mark() -> None:
    said = "nid0001|idle\nnid0002|idle\nnid0002|idle\nnid0003|idle*\nnid0004|idle~\nnid0005|plnd\nnid0006|idle-\n"
    assert slurm.read_idle(said) == {"nid0001", "nid0002"}


def test_plans_are_those_of_others_the_earliest_of_each_node() -> None:
    said = (
        "wrap|1795287431|nid[0001-0003]\n"
        "a|b|1795287400|nid0002\n"
        "bftrain-t|1795287300|nid0001\n"
        "later|N/A|(null)\n"
        "odd|1795287300|nid[9-1\n"
    )
    assert slurm.read_plans(said, "bftrain-t") == {
        "nid0001": 1795287431.0,
        "nid0002": 1795287400.0,
        "nid0003": 1795287431.0,
    }


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", "away"),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", "away"),
        ("did not answer within 20 s", "away"),
        ("something that no version has said yet", "away"),
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates ...",
            "limit",
        ),
        ("sbatch: error: QOSMaxWallDurationPerJobLimit", "limit"),
        ("sbatch: error: AssocGrpSubmitJobsLimit", "limit"),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", "limit"),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "refused"),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            "refused",
        ),
        ("sbatch: error: User's group not permitted to use this partition", "refused"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "refused"),
        ("cannot be run: No such file or directory", "refused"),
        ("scancel: error: Kill job error on job id 12: Invalid job id specified", "gone"),
        ("scancel: error: Kill job error on job id 12: Job/step already completing or completed", "gone"),
    ],
)
def test_what_failed_says_what_follows(said: str, trouble: str) -> None:
    batch = slurm.Slurm(SlurmSettings(partition="p"))
    assert batch.trouble(CommandFailed(("sbatch",), 1, said)) is Trouble(trouble)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({}, "name the partition"),
        ({"partition": "p", "pendng": 3}, "did you mean 'pending'"),
        ({"partition": "p", "pending": "many"}, "pending"),
        ({"partition": "p", "lengths_s": [30]}, "at least 60 s"),
        ({"partition": "p", "lengths_s": []}, "at least 60 s"),
        ({"partition": " p"}, "partition"),
        ({"partition": "p", "options": "--gres=gpu:1"}, "options"),
    ],
)
def test_settings_of_a_site_are_held_to_their_rules(table: dict[str, object], says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        slurm.make(table, SITE)


def test_the_job_becomes_the_agent_and_keeps_its_log_to_itself(tmp_path: Path) -> None:
    folder = tmp_path / "it's here; $(touch broken)"
    (folder / "pilots").mkdir(parents=True)
    order = AgentOrder(argv=("printf", "%s|", "{node}", "--at={node}:7", "a b", "$HOME", "it's", ""))
    script = pilot_script(order, Site(name="t", folder=folder), "node=$SLURMD_NODENAME")
    done = subprocess.run(["sh"], input=script, text=True, check=True, env={"SLURMD_NODENAME": "n1"}, cwd=tmp_path)
    assert done.returncode == 0
    (log,) = (folder / "pilots").iterdir()
    assert log.name == "n1.log"
    assert log.read_text() == "n1|--at=n1:7|a b|$HOME|it's||"
    assert log.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "broken").exists()
    assert script.splitlines()[-1].startswith("exec printf")


def test_with_a_grace_the_agent_is_a_step_which_slurm_signals_at_its_beginning() -> None:
    order, settings = AgentOrder(argv=("agent",)), SlurmSettings(partition="p")
    lines = [
        slurm.Slurm(settings, grace_s).script(order, Site(name="t", folder=Path("/f"), grace_s=grace_s)).splitlines()
        for grace_s in (0.0, 4.0)
    ]
    assert [line[-1].split()[:2] for line in lines] == [["exec", "agent"], ["exec", "srun"]]
    assert lines[1][-1].endswith(" agent")


@pytest.mark.parametrize("node", ["", "../up", "a/b"])
def test_a_job_without_a_name_for_its_node_ends(node: str, tmp_path: Path) -> None:
    script = pilot_script(AgentOrder(argv=("true",)), Site(name="t", folder=tmp_path), "node=$SLURMD_NODENAME")
    done = subprocess.run(["sh"], input=script, text=True, check=False, env={"SLURMD_NODENAME": node})
    assert done.returncode == 64


CONFIG = """\
Configuration data as of 2026-11-21T18:54:11
AccountingStorageType   = {accounting}
KillWait                = 5 sec
MaxJobCount             = 10000
PreemptMode             = {mode}
PreemptType             = {kind}
PreemptExemptTime       = 00:00:00
"""
PARTITION = (
    "PartitionName=pilot AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS={qos} "
    "DefaultTime=NONE GraceTime={grace} MaxNodes=UNLIMITED MaxTime={time} Nodes=nid[0001-0004] PriorityTier=1 "
    "PreemptMode={mode} State={state} TotalCPUs=16 TotalNodes=4\n"
)
MAIN = "PartitionName=main Default=YES Nodes=nid[0001-0004] PriorityTier={tier} PreemptMode=OFF State=UP\n"


def asked(
    *,
    kind: str = "preempt/partition_prio",
    mode: str = "CANCEL",
    grace: str = "0",
    state: str = "UP",
    time: str = "UNLIMITED",
    qos: str = "",
    tables: dict[str, str] | None = None,
    grace_s: float = 0.0,
) -> PilotLimits:
    """Ask a Slurm of such a configuration; ``tables`` is what sacctmgr prints of ``assoc`` and ``qos``.

    Its ``partitions`` are those beside that of the pilots.
    """
    others = (tables or {}).get("partitions", MAIN.format(tier=100))

    async def run(command: Command) -> str:
        match command.argv:
            case ("scontrol", "show", "config"):
                accounting = "accounting_storage/" + ("slurmdbd" if tables else "none")
                return CONFIG.format(kind=kind, mode=mode, accounting=accounting)
            case ("scontrol", "show", "partition", "--all", "--oneliner"):
                return PARTITION.format(mode=mode, grace=grace, state=state, time=time, qos=qos or "N/A") + others
            case ("sacctmgr", "--parsable2", "show", what, *_) if tables and what in tables:
                return tables[what]
        raise CommandFailed(command.argv, 1, "this is not known")

    return asyncio.run(slurm_limits.ask_limits(run, SlurmSettings(partition="pilot", qos=qos), grace_s))


def test_what_the_site_allows_is_read() -> None:
    assert asked() == PilotLimits(submitted=10000, nodes=frozenset(f"nid000{number}" for number in range(1, 5)))
    assert asked(time="1-12:00:00").longest_s == 36 * 3600
    tables = {
        "assoc": "GrpJobs|GrpSubmit|GrpTRES|MaxJobs|MaxSubmit\n|500||40|\n",
        "qos": "Name|Preempt|PreemptMode|GraceTime|GrpJobs|GrpSubmit|GrpTRES|MaxJobsPU|MaxSubmitPU|MaxTRESPU\n"
        "scavenger||cancel|00:00:00|||cpu=400,node=32||60|node=64\n",
    }
    found = asked(qos="scavenger", tables=tables)
    assert (found.running, found.submitted, found.remarks) == (32, 60, ())
    tables["qos"] += "normal|scavenger|||||||\n"
    found = asked(kind="preempt/qos", mode="REQUEUE", qos="scavenger", tables=tables)
    assert found.remarks == (), "the QOS has a mode of its own"


def test_the_shortest_of_all_limits_on_length_counts() -> None:
    tables = {"assoc": "MaxJobs|MaxWall\n|2-00:00:00\n", "qos": "Name|MaxWall\nscavenger|04:00:00\n"}
    assert asked(qos="scavenger", tables=tables).longest_s == 4 * 3600
    assert asked(qos="scavenger", tables=tables, time="01:30:00").longest_s == 5400
    tables["assoc"] = "MaxJobs|MaxWall\n|00:30:00\n|\n"
    assert asked(qos="scavenger", tables=tables).longest_s == 1800
    assert asked(qos="scavenger", tables={"assoc": "MaxWall\n\n", "qos": "MaxWall\n\n"}).longest_s == LATER


@pytest.mark.parametrize("said", ["config", "partition"])
def test_a_configuration_that_cannot_be_read_is_no_refusal(said: str) -> None:
    async def run(command: Command) -> str:
        return "" if said in command.argv else PARTITION.format(mode="CANCEL", grace=0, state="UP", time="", qos="")

    with pytest.raises(CommandFailed, match="cannot be read"):
        asyncio.run(slurm_limits.ask_limits(run, SlurmSettings(partition="pilot"), 0.0))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"grace": "30"}, "GraceTime is 30"),
        ({"grace": "30", "grace_s": 40.0}, "make [agents] grace_s smaller"),
        ({"mode": "REQUEUE"}, "better CANCEL"),
        ({"mode": "GANG,SUSPEND"}, "better CANCEL"),
        ({"state": "DOWN"}, "only wait"),
    ],
)
def test_what_makes_others_wait_is_remarked(config: dict[str, str], words: str) -> None:
    assert words in " ".join(asked(**config).remarks)  # type: ignore[arg-type]  # rows of a test


def test_a_grace_that_agents_use_is_no_remark() -> None:
    assert asked(grace="30", grace_s=25.0).remarks == ()


@pytest.mark.parametrize("config", [{"kind": "preempt/none"}, {"mode": "OFF"}])
def test_pilots_that_would_stand_in_the_way_are_refused(config: dict[str, str]) -> None:
    with pytest.raises(NotAvailable, match="others would wait"):
        asked(**config)  # type: ignore[arg-type]  # rows of a test


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (MAIN.format(tier=1), "jobs of partition 'main'.* PriorityTier=1 is not below"),
        ("", "all other partitions"),
        (MAIN.format(tier=1).replace("YES", "NO"), "all other partitions"),
        (MAIN.format(tier=100).replace("nid", "gpu"), "all other partitions"),
    ],
)
def test_pilots_that_no_partition_of_a_higher_tier_preempts_are_refused(others: str, words: str) -> None:
    with pytest.raises(NotAvailable, match=words):
        asked(tables={"partitions": others})


def test_partitions_whose_jobs_wait_for_pilots_are_remarked() -> None:
    debug = "PartitionName=debug Nodes=nid[0003-0009] PriorityTier=1 PreemptMode={}\n"
    (remark,) = asked(tables={"partitions": MAIN.format(tier=2) + debug.format("OFF")}).remarks
    assert remark.startswith("jobs of debug wait for pilots")
    assert asked(tables={"partitions": MAIN.format(tier=2) + debug.format("CANCEL")}).remarks == ()


@pytest.mark.parametrize(
    ("qos", "words"), [("", "none is named"), ("scavenger", "may preempt"), ("nix", "no such QOS")]
)
def test_a_qos_that_no_other_preempts_is_refused(qos: str, words: str) -> None:
    tables = {"assoc": "MaxJobs\n\n", "qos": "Name|Preempt|PreemptMode\nscavenger||cancel\nnormal|other|cluster\n"}
    with pytest.raises(NotAvailable, match=words):
        asked(kind="preempt/qos", qos=qos, tables=tables)


@pytest.mark.parametrize(
    ("said", "never"),
    [
        ("allocation failure: Invalid qos specification", True),
        ("allocation failure: Invalid account or account/partition combination specified", True),
        ("sbatch: unrecognized option '--foo'\nTry \"sbatch --help\" for more information", True),
        ("sbatch: error: Invalid --mem specification", True),
        ("allocation failure: Requested node configuration is not available", False),
        ("allocation failure: Unable to contact slurm controller (connect failure)", False),
        ("", False),
    ],
)
def test_what_slurm_never_takes_is_found_without_a_pilot(said: str, never: bool) -> None:  # noqa: FBT001 - a row
    asked: list[tuple[str, ...]] = []

    async def run(command: Command) -> str:
        asked.append(command.argv)
        if said:
            raise CommandFailed(command.argv, 1, said)
        return ""

    order = PilotOrder(name="bftrain-x", mark="m", script="#!/bin/sh\n", seconds=600.0)
    batch = slurm.Slurm(SlurmSettings(partition="p", qos="q"))
    assert asyncio.run(batch.refused(run, order)) == (said if never else "")
    assert [argv[-1] for argv in asked] == ["--test-only"]


def test_a_partition_that_is_not_there_is_reported() -> None:
    async def run(command: Command) -> str:
        return "PreemptType = preempt/partition_prio" if "config" in command.argv else MAIN.format(tier=100)

    with pytest.raises(NotAvailable, match="no such partition"):
        asyncio.run(slurm_limits.ask_limits(run, SlurmSettings(partition="nix"), 0.0))


@pytest.mark.parametrize(
    "word", ["--partition=main", "--part=main", "-pmain", "-p", "--qos=high", "--nodes=2", "--requeue", "-t"]
)
def test_options_that_would_lead_pilots_elsewhere_are_refused(word: str) -> None:
    with pytest.raises(BadValue, match=r"options: '.*' contradicts how pilots"):
        SlurmSettings(partition="spare", options=("--gres=gpu:1", word, "main"))


def test_jobs_of_a_partition_preempt_no_pilots_there_unless_these_have_a_qos() -> None:
    backends = [slurm.Slurm(SlurmSettings(partition="spare", qos=qos)) for qos in ("", "low")]
    assert [one.partitions for one in backends] == [("spare",), ()]


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ((), 0),
        (("--gres=gpu:4",), 4),
        (("--gres=gpu:a100:2",), 2),
        (("--gres=gpu",), 1),
        (("--gres=lustre:1,gpu:a100:8",), 8),
        (("--gpus-per-node=a100:4", "--constraint=nvlink"), 4),
        (("--gpus=2",), 2),
        (("--gres=tape:3",), 0),
    ],
)
def test_gpus_that_pilots_ask_for_are_understood(options: tuple[str, ...], gpus: float) -> None:
    assert slurm.Slurm(SlurmSettings(partition="spare", options=options)).gpus == gpus
