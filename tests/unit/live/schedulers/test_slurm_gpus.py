"""Pilots of one GPU each in Slurm: what is read here was printed by a real Slurm 22.05, but for names and types."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from bftrain import BadConfig, BftrainError, NotAvailable
from bftrain.live.schedulers import slurm_gpus
from bftrain.live.schedulers.port import filled
from tests.helpers.pilot_stage import PilotStage, ToyScheduler, play
from tests.helpers.schedulers import (
    AgentOrder,
    Command,
    CommandFailed,
    Pilot,
    PilotLimits,
    PilotOrder,
    PilotState,
    Scheduler,
    Site,
    SlurmSettings,
    pools_of,
    slurm,
)

SITE = Site(name="t", folder=Path("/nowhere"), unit="gpu")
ORDER = PilotOrder(name="bftrain-t", mark="bftrain-t.12ab", script="#!/bin/sh\n", seconds=86400)


def backend(**settings: object) -> slurm.Slurm:
    chosen = SlurmSettings(**{"partition": "pilot", **settings})  # type: ignore[arg-type]  # rows of a test
    return slurm.Slurm(chosen, unit="gpu")


def made(*options: str) -> Scheduler:
    return slurm.make({"partition": "pilot", "options": options}, SITE)


def test_a_pilot_asks_for_one_gpu_and_shares_its_node() -> None:
    words = backend().sbatch(ORDER, 1).argv
    assert "--gres=gpu:1" in words
    assert {"--nodes=1", "--ntasks=1"} < set(words)
    assert "--exclusive" not in words
    typed = backend(options=("--gres=gpu:a100:1", "--cpus-per-gpu=8")).sbatch(ORDER, 1).argv
    assert [word for word in typed if "gres" in word] == ["--gres=gpu:a100:1"]
    assert made().gpus == 1  # type: ignore[attr-defined]  # of schedulers with pilots


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--gres=gpu:4", "asks for 4 GPUs"),
        ("--gpus-per-node=a100:2", "asks for 2 GPUs"),
        ("--exclusive", "whole nodes"),
        ("--exclusive=user", "whole nodes"),
    ],
)
def test_options_against_single_gpus_are_refused(option: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says) as error:
        made(option)
    assert error.value.where == "[scheduler] options"


def run_script(folder: Path, gpus: str, *, node: str = "n1") -> subprocess.CompletedProcess[str]:
    """Run the script of a pilot to which Slurm gave these GPUs; its agent prints its words."""
    order = AgentOrder(argv=("/bin/echo", "--node", "{node}", "--address", "{host}-ib"))
    script = backend().script(order, Site(name="t", folder=folder, unit="gpu"))
    (folder / "pilots").mkdir(exist_ok=True)
    env = {"SLURMD_NODENAME": node, **({"SLURM_JOB_GPUS": gpus} if gpus else {})}
    return subprocess.run(["/bin/sh", "-c", script], env=env, capture_output=True, text=True, check=False)


def test_an_agent_is_called_as_its_gpu_and_reached_at_its_node(tmp_path: Path) -> None:
    assert run_script(tmp_path, "3").returncode == 0
    assert (tmp_path / "pilots" / "n1-gpu3.log").read_text() == "--node n1/gpu3 --address n1-ib\n"
    assert filled(AgentOrder(argv=("{node}", "{host}")), "n1/gpu3") == ("n1/gpu3", "n1")


@pytest.mark.parametrize("gpus", ["", "0,1"])
def test_a_pilot_that_does_not_know_its_gpu_ends_with_a_word(gpus: str, tmp_path: Path) -> None:
    assert run_script(tmp_path, gpus).returncode == 64
    assert f"SLURM_JOB_GPUS='{gpus}' is not one GPU" in (tmp_path / "pilots" / f"n1-gpu{gpus}.log").read_text()


NODES = """\
n1|mix|gpu:4(S:0-1)|gpu:a100:3(IDX:0,2-3)
n2|idle|gpu:a100:2,gpu:v100:2,mps:8|gpu:a100:1(IDX:0),gpu:v100:0(IDX:N/A),mps:0
n3|alloc|gpu:4|gpu:2(IDX:0-1)
n4|mix-|gpu:4|gpu:0
n5|idle|(null)|(null)
"""


def test_idle_gpus_are_those_of_nodes_that_can_start_a_job() -> None:
    assert slurm_gpus.read_idle_gpus(NODES) == {"n1/gpu3", "n2/gpu1", "n2/gpu2", "n2/gpu3"}
    assert slurm_gpus.read_idle_gpus("") == frozenset()


DETAILS = (
    "scontrol: show job {0}\nJobId={0} JobName=bftrain-t JobState=RUNNING Reason=None TRES=cpu=1,node=1,billing=1 "
    "JOB_GRES={2}:1   Nodes={1} CPU_IDs=7 Mem=0 GRES={2}:1(IDX:{3}) MinCPUsNode=1 TresPerNode=gres:{2}:1 \n"
)


def test_the_gpu_of_a_job_is_read_from_its_details() -> None:
    said = DETAILS.format(14, "nid0003", "gpu", 2) + DETAILS.format(15, "n4", "gpu:a100", 0)
    assert slurm_gpus.read_slots(said) == {"14": "nid0003/gpu2", "15": "n4/gpu0"}
    several = DETAILS.format(16, "n5", "gpu", 1).replace(" GRES=", " GRES=shard:2(0/4),")
    assert slurm_gpus.read_slots(several) == {"16": "n5/gpu1"}
    assert slurm_gpus.read_slots("JobId=3 JobName=x Nodes=n1 CPU_IDs=0 Mem=0 GRES= MinCPUsNode=1\n") == {}


def listed(number: int, state: str, node: str) -> str:
    return f"{number}|{number}|{state}|1795287256|1795287316|bftrain-t.12ab|{node}|None\n"


class Queue:
    """Slurm's answers about pilots: squeue's list, and the GPUs of jobs that are still there."""

    def __init__(self) -> None:
        self.lines = ""
        self.gpus: dict[str, tuple[str, int]] = {}
        self.asked: list[str] = []

    async def __call__(self, command: Command) -> str:
        if command.argv[0] == "squeue":
            return self.lines
        self.asked.append(command.stdin)
        numbers = [line.rpartition(" ")[2] for line in command.stdin.splitlines()]
        said = "".join(DETAILS.format(one, *place(self.gpus[one])) for one in numbers if one in self.gpus)
        if set(numbers) <= self.gpus.keys():
            return said
        raise CommandFailed(command.argv, 1, "slurm_load_jobs error: Invalid job id specified", said)


def place(gpu: tuple[str, int]) -> tuple[str, str, int]:
    return gpu[0], "gpu", gpu[1]


def test_the_gpu_of_each_pilot_is_asked_for_once() -> None:
    batch, queue = backend(), Queue()

    def places() -> Sequence[tuple[str, str]]:
        found: Sequence[Pilot] = asyncio.run(batch.pilots(queue, "bftrain-t"))
        return [(one.id, one.node) for one in found]

    queue.lines = listed(1, "PENDING", "") + listed(2, "RUNNING", "n1") + listed(3, "RUNNING", "n1")
    queue.gpus = {"2": ("n1", 1)}
    assert places() == [("1", ""), ("2", "n1/gpu1"), ("3", "")], "one that went meanwhile is nowhere"
    queue.lines = listed(2, "PREEMPTED", "n1") + listed(3, "FAILED", "n1") + listed(4, "RUNNING", "n2")
    queue.gpus = {"4": ("n2", 0)}
    assert places() == [("2", "n1/gpu1"), ("3", "n1"), ("4", "n2/gpu0")]
    assert places()[-1] == ("4", "n2/gpu0")
    assert queue.asked == ["show job 2\nshow job 3\n", "show job 4\n"]


def test_a_controller_that_does_not_answer_is_not_taken_for_pilots_without_a_gpu() -> None:
    async def run(command: Command) -> str:
        if command.argv[0] == "squeue":
            return listed(2, "RUNNING", "n1")
        raise CommandFailed(command.argv, 1, "Unable to contact slurm controller")

    with pytest.raises(CommandFailed, match="Unable to contact"):
        asyncio.run(backend().pilots(run, "bftrain-t"))


def test_a_drained_gpu_keeps_new_pilots_off_its_node(tmp_path: Path) -> None:
    async def test() -> None:
        toy = ToyScheduler("n1", "n2")
        toy.allowed = PilotLimits(nodes=frozenset({"n1", "n2"}))
        async with PilotStage(tmp_path, toy=toy) as stage:
            stage.scheduler.want(4, without={"n1/gpu2"})
            await stage.until(lambda: bool(toy.orders) and toy.orders[-1].avoid == ("n1",), "n1 is avoided")

    play(test())


def test_what_is_known_of_a_node_holds_for_its_gpus(tmp_path: Path) -> None:
    async def test() -> None:
        toy = ToyScheduler("n1/gpu0", "n1/gpu1", "n2/gpu0")
        toy.planned = {"n1": 2e9}
        (tmp_path / "spool").mkdir(mode=0o700)
        async with PilotStage(tmp_path, toy=toy, spool=str(tmp_path / "spool")) as stage:
            await stage.until(lambda: len(stage.idle_nodes()) == 3, "all are ours")
            assert stage.idle_nodes() == {"n1/gpu0": 2e9, "n1/gpu1": 2e9, "n2/gpu0": None}
            assert stage.scheduler.nodes == {"n1", "n2"}
            (lost,) = [job.id for job in toy.jobs.values() if job.node == "n1/gpu1"]
            toy.nodes.remove("n1/gpu1")
            toy.change(lost, PilotState.TAKEN)
            await stage.until(lambda: set(stage.idle_nodes()) == {"n1/gpu0", "n2/gpu0"}, "one is taken")
            assert list(stage.scheduler.hooks._silent) == ["n1"], "whose hook tells of it"  # noqa: SLF001 - in 5 s only

    play(test())


CONFIG = """\
AccountingStorageType   = accounting_storage/slurmdbd
GresTypes               = {types}
PreemptMode             = CANCEL
PreemptType             = preempt/partition_prio
SelectType              = {select}
"""


def asked(
    *, types: str = "gpu", select: str = "select/cons_tres", shares: str = "NO", nodes: str = NODES, limit: str = ""
) -> PilotLimits:
    async def run(command: Command) -> str:
        match command.argv:
            case ("scontrol", "show", "config"):
                return CONFIG.format(types=types, select=select)
            case ("scontrol", "show", "partition", *_):
                pilots = f"PartitionName=pilot OverSubscribe={shares} Nodes=n[1-5] PreemptMode=CANCEL State=UP"
                return f"{pilots}\nPartitionName=main PriorityTier=2"
            case ("sinfo", *_):
                return nodes
        return f"GrpTRES\n{limit}\n"

    return asyncio.run(backend().limits(run))


def test_limits_on_gpus_and_nodes_limit_pilots() -> None:
    assert asked().nodes == {"n1", "n2", "n3", "n4", "n5"}
    assert asked(limit="cpu=9,gres/gpu=12").running == 12
    assert asked(limit="node=8,gres/gpu=12").running == 8


@pytest.mark.parametrize(
    ("site", "says"),
    [
        ({"types": "(null)"}, r"partition 'pilot': Slurm knows no GPUs: GresTypes=\(null\)"),
        ({"select": "select/linear"}, "jobs get whole nodes there, not single GPUs: SelectType=select/linear"),
        ({"shares": "EXCLUSIVE"}, "jobs get whole nodes there, not single GPUs: OverSubscribe=EXCLUSIVE"),
        ({"nodes": "n1|idle|(null)|(null)\nn2|mix|craynetwork:4|craynetwork:0\n"}, "no node has GPUs there"),
    ],
)
def test_a_partition_without_single_gpus_is_refused(site: dict[str, str], says: str) -> None:
    with pytest.raises(NotAvailable, match=says):
        asked(**site)


def test_pools_of_one_run_hand_out_the_same() -> None:
    one = {"name": "slurm", "partition": "a", "unit": "gpu"}
    assert [pool.unit for pool in pools_of([one, {**one, "pool": "b"}])] == ["gpu", "gpu"]
    with pytest.raises(BadConfig, match='has unit = "node", and the first one has "gpu"'):
        pools_of([one, {"name": "slurm", "pool": "b"}])
    with pytest.raises(BftrainError, match=r"is 'core'.*known: gpu, node"):
        pools_of({**one, "unit": "core"})
