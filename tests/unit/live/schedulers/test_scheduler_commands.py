"""What Slurm, PBS and Flux are asked, in which order, what follows from failures, and the scripts of pilots."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bftrain import BadConfig, BftrainError, NotAvailable, registry
from tests.helpers.schedulers import (
    AGENT,
    ORDER,
    SITE,
    CommandFailed,
    PilotLimits,
    PilotState,
    Said,
    Scheduler,
    failed,
    of_flux,
    of_pbs,
    of_slurm,
    pools_of,
)

DATA = Path(__file__).parents[3] / "data"


def made(scheduler: str, table: dict[str, Any]) -> Scheduler:
    found: Scheduler = registry.load("scheduler", scheduler)(table, SITE)
    return found


def test_sbatch_takes_one_whole_node_and_reads_the_script() -> None:
    said = Said()
    assert asyncio.run(of_slurm().submit(said, replace(ORDER, seconds=86_400.0), 1)) == 1
    assert " ".join(said.asked[0]) == (
        "sbatch --parsable --job-name=bftrain-t --comment=bftrain-t.12ab --partition=pilot --nodes=1 --ntasks=1 "
        "--exclusive --no-requeue --output=/dev/null --input=/dev/null --time=1440 --nice=10000"
    )
    order = replace(ORDER, seconds=601.0, rank=2, avoid=("nid0001", "nid0002", "gpu7"))
    wanted: dict[str, Any] = {"qos": "scavenger", "account": "a", "options": ("--gres=gpu:4",)}
    assert asyncio.run(of_slurm(**wanted).submit(said, order, 5)) == 5
    words = said.asked[-1]
    assert {"--qos=scavenger", "--account=a", "--time=11", "--nice=20000", "--array=1-5"} < set(words)
    assert ("--exclude=gpu7,nid[0001-0002]" in words, words[-1]) == (True, "--gres=gpu:4")
    assert asyncio.run(of_slurm(arrays=False).submit(said, ORDER, 5)) == 1
    assert not any("--array" in word for word in said.asked[-1])
    typed = asyncio.run(of_slurm("gpu", options=("--gres=gpu:a100:1",)).submit(said, ORDER, 1))
    assert (typed, [word for word in said.asked[-1] if "gres" in word]) == (1, ["--gres=gpu:a100:1"])
    assert asyncio.run(of_slurm("gpu").submit(said, ORDER, 1)) == 1
    assert ("--gres=gpu:1" in said.asked[-1], "--exclusive" in said.asked[-1]) == (True, False)


def test_qsub_takes_one_whole_node_and_runs_the_script() -> None:
    said = Said()
    assert asyncio.run(of_pbs(account="a", options=("-l", "mem=1gb")).submit(said, ORDER, 5)) == 1
    words = " ".join(said.asked[0])
    assert words.startswith("qsub -N bftrain-t -q idle -j oe ")
    assert "-l select=1:ncpus=1 -l place=exclhost -l walltime=3600" in words
    assert "-v BFTRAIN_PILOT=bftrain-t.12ab -p -100" in words
    assert "-W umask=077" in words
    assert words.endswith("-A a -l mem=1gb -- /bin/sh -c umask 077; exec true"), "no shell of PBS is above the agent"


def test_flux_gives_one_whole_node_after_all_others() -> None:
    said = Said()
    batch = of_flux(queue="idle", options=("--bank=physics",))
    asyncio.run(batch.submit(said, replace(ORDER, avoid=("n1", "n2")), 1))
    *words, script = said.asked[0]
    assert " ".join(words) == (
        "flux submit -N1 -n1 --exclusive --job-name=bftrain-t.12ab --output=/dev/null --time-limit=3600s --urgency=2 "
        "--queue=idle --requires=-host:n1,n2 --bank=physics sh -c"
    )
    assert script == ORDER.script
    asyncio.run(batch.cancel(said, ["7", "8"]))
    assert said.asked[-1] == ("flux", "cancel", "7", "8")


@pytest.mark.parametrize(
    ("make", "env"),
    [
        (of_slurm, {"SLURMD_NODENAME": "n1"}),
        (of_pbs, {"PBS_NODEFILE": "nodes"}),
        (of_flux, {"PATH": "bin:/usr/bin:/bin"}),
    ],
)
def test_the_job_becomes_the_agent_and_keeps_its_log_to_itself(
    make: Callable[[], Any], env: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "it's here; $(touch broken)"
    (folder / "pilots").mkdir(parents=True)
    (tmp_path / "nodes").write_text("n1.site.org\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "flux").write_text("#!/bin/sh\necho n1\n")
    (tmp_path / "bin" / "flux").chmod(0o755)
    order = replace(AGENT, argv=("printf", "%s|", "{node}", "--at={node}:7", "a b", "$HOME", "it's", ""))
    script = make().script(order, replace(SITE, folder=folder))
    assert script.splitlines()[-1].startswith("exec printf")
    subprocess.run(["sh"], input=script, text=True, check=True, env=env, cwd=tmp_path)
    (log,) = (folder / "pilots").iterdir()
    assert (log.name, log.read_text()) == ("n1.log", "n1|--at=n1:7|a b|$HOME|it's||")
    assert log.stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "broken").exists()
    if "SLURMD_NODENAME" in env:
        for node in ("", "../up", "a/b"):
            done = subprocess.run(["sh"], input=script, text=True, check=False, env={"SLURMD_NODENAME": node})
            assert done.returncode == 64, "a job without a name for its node ends"
        lines = of_slurm(grace_s=4.0).script(AGENT, replace(SITE, grace_s=4.0)).splitlines()
        assert lines[-1].startswith("exec srun"), "Slurm signals steps at the start of the grace"


def run_script(folder: Path, gpus: str) -> int:
    """Run the script of a pilot to which Slurm gave these GPUs; its agent prints its words."""
    order = replace(AGENT, argv=("/bin/echo", "--node", "{node}", "--address", "{host}-ib"))
    script = of_slurm("gpu").script(order, replace(SITE, folder=folder, unit="gpu"))
    (folder / "pilots").mkdir(exist_ok=True)
    env = {"SLURMD_NODENAME": "n1", **({"SLURM_JOB_GPUS": gpus} if gpus else {})}
    return subprocess.run(["/bin/sh", "-c", script], env=env, capture_output=True, check=False).returncode


def test_an_agent_is_called_as_its_gpu_and_reached_at_its_node(tmp_path: Path) -> None:
    assert run_script(tmp_path, "3") == 0
    assert (tmp_path / "pilots" / "n1-gpu3.log").read_text() == "--node n1/gpu3 --address n1-ib\n"
    for gpus in ("", "0,1"):
        assert run_script(tmp_path, gpus) == 64
        assert f"SLURM_JOB_GPUS='{gpus}'" in (tmp_path / "pilots" / f"n1-gpu{gpus}.log").read_text()


DETAILS = (
    "scontrol: show job {0}\nJobId={0} JobName=bftrain-t JobState=RUNNING Reason=None TRES=cpu=1,node=1,billing=1 "
    "JOB_GRES={2}:1   Nodes={1} CPU_IDs=7 Mem=0 GRES={2}:1(IDX:{3}) MinCPUsNode=1 TresPerNode=gres:{2}:1 \n"
)


def listed(number: int, state: str, node: str) -> str:
    return f"{number}|{number}|{state}|1795287256|1795287316|bftrain-t.12ab|{node}|None\n"


def test_the_gpu_of_each_pilot_is_asked_for_once() -> None:
    batch = of_slurm("gpu")

    def places(queue: str, scontrol: str | Exception) -> tuple[list[str], int]:
        said = Said(squeue=queue, scontrol=scontrol)
        found = [one.node for one in asyncio.run(batch.pilots(said, "bftrain-t"))]
        return found, said.programs.count("scontrol")

    gone = failed("slurm_load_jobs error: Invalid job id specified", DETAILS.format(2, "n1", "gpu", 1))
    queue = listed(1, "PENDING", "") + listed(2, "RUNNING", "n1") + listed(3, "RUNNING", "n1")
    assert places(queue, gone) == (["", "n1/gpu1", ""], 1), "one that went meanwhile is nowhere"
    queue = listed(2, "PREEMPTED", "n1") + listed(3, "FAILED", "n1") + listed(4, "RUNNING", "n2")
    several = DETAILS.format(4, "n2", "gpu:a100", 0).replace(" GRES=", " GRES=shard:2(0/4),")
    assert places(queue, several) == (["n1/gpu1", "n1", "n2/gpu0"], 1)
    assert places(queue, several) == (["n1/gpu1", "n1", "n2/gpu0"], 0)
    with pytest.raises(CommandFailed, match="Unable to contact"):
        places(listed(5, "RUNNING", "n1"), failed("Unable to contact slurm controller"))


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
    run = Said(sbatch=failed(said) if said else "")
    assert asyncio.run(of_slurm().refused(run, ORDER)) == (said if never else "")
    assert [argv[-1] for argv in run.asked] == ["--test-only"]


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
    assert of_slurm(options=options).gpus == gpus


def test_pilots_that_are_gone_already_are_no_trouble_to_cancel() -> None:
    said = Said(scancel=failed("scancel: error: Kill job error on job id 7: Invalid job id specified"))
    asyncio.run(of_slurm().cancel(said, [f"{number}" for number in range(501)]))
    assert [len(argv) - 1 for argv in said.asked] == [500, 1], "as many as fit on a command line"
    with pytest.raises(CommandFailed, match="Unable to contact"):
        asyncio.run(of_slurm().cancel(Said(scancel=failed("Unable to contact slurm controller")), ["7"]))
    asyncio.run(of_pbs().cancel(Said(qdel=failed("qdel: Unknown Job Id 7.pbs")), ["7.pbs"]))
    with pytest.raises(CommandFailed, match="Unauthorized"):
        asyncio.run(of_pbs().cancel(Said(qdel=failed("qdel: Unauthorized Request")), ["7.pbs"]))


def test_a_controller_that_is_away_is_not_taken_for_a_partition_that_is_missing() -> None:
    away = failed("Unable to contact slurm controller")
    said = Said(scontrol_show_config="PreemptType = preempt/partition_prio\n", scontrol_show_partition=away)
    with pytest.raises(CommandFailed, match="Unable to contact"):
        asyncio.run(of_slurm().limits(said))
    with pytest.raises(CommandFailed, match="cannot connect"):
        asyncio.run(of_pbs().limits(Said(qstat=failed("cannot connect to server"))))


def test_pilots_that_end_are_looked_up_among_finished_jobs_once() -> None:
    batch, said = of_pbs(), Said(qselect="7.pbs\n", qstat="Job Id: 7.pbs|job_state=R\n")

    def states(said: Said) -> list[PilotState]:
        return [one.state for one in asyncio.run(batch.pilots(said, "t"))]

    assert states(said) == [PilotState.RUNNING]
    assert states(Said(**{"qstat_-x": "Job Id: 7.pbs|job_state=E\n"})) == [PilotState.ENDING]
    over = Said(**{"qstat_-x": "Job Id: 7.pbs|job_state=F|substate=91\n"})
    assert (states(over), states(over)) == ([PilotState.TAKEN], [PilotState.TAKEN])
    assert over.asked.count(("qstat", "-x", "-f", "-F", "dsv", "7.pbs")) == 1
    ends = (("92|Exit_status=0", "LEFT"), ("93|Exit_status=64", "FAILED"), ("93|Exit_status=271", "TAKEN"))
    for number, (text, state) in enumerate((*ends, ("93|Exit_status=-29", "TAKEN"))):
        one = of_pbs()
        asyncio.run(one.pilots(Said(qselect=f"{number}.pbs\n", qstat=f"Job Id: {number}.pbs|job_state=R\n"), "t"))
        found = asyncio.run(
            one.pilots(Said(**{"qstat_-x": f"Job Id: {number}.pbs|job_state=F|substate={text}\n"}), "t")
        )
        assert [pilot.state for pilot in found] == [PilotState[state]]


def test_pbs_is_asked_about_many_jobs_in_one_request() -> None:
    """Naming jobs takes qstat two of the ports of root for each, and there are only some hundred of them."""
    jobs = "".join(f"Job Id: {number}.pbs|job_state=Q\n" for number in range(60))
    said = Said(qselect="".join(f"{number}.pbs\n" for number in range(60)), qstat=jobs)
    assert len(asyncio.run(of_pbs().pilots(said, "t"))) == 60
    assert said.asked[1:] == [("qstat", "-f", "-F", "dsv", "idle")]
    asyncio.run(of_pbs().plans(said, "t"))
    assert len([word for word in said.asked[-1] if word.endswith(".pbs")]) == 50, "the first ones will do"
    quiet = Said()
    assert asyncio.run(of_pbs().plans(quiet, "t")) == {}
    assert quiet.programs == ["qselect"], "no job waits, so there is nothing to ask"


def test_failures_to_list_pbs_jobs_are_no_empty_lists() -> None:
    with pytest.raises(CommandFailed, match="End of File"):
        asyncio.run(of_pbs().pilots(Said(qselect=failed("End of File")), "bftrain-t"))
    with pytest.raises(CommandFailed, match="No route"):
        asyncio.run(of_pbs().pilots(Said(qselect="7.pbs\n", qstat=failed("No route to host")), "bftrain-t"))
    gone = failed("qstat: Unknown Job Id 7.pbs", "Job Id: 8.pbs|job_state=Q\n")
    found = asyncio.run(of_pbs().pilots(Said(qselect="7.pbs\n8.pbs\n", qstat=gone), "bftrain-t"))
    assert [one.id for one in found] == ["8.pbs"], "jobs that went meanwhile are left out"
    (remark,) = asyncio.run(of_pbs().limits(Said(qstat="Queue: idle\n", qmgr=failed("cannot be run")))).remarks
    assert "is not known" in remark


def test_output_of_openpbs_23_is_read() -> None:
    """Recorded on a server built from its source: three nodes, two pilots that run and one that was preempted."""
    printed = {file.stem: file.read_text() for file in (DATA / "openpbs-23.06.06").iterdir()}
    site = Said(qmgr=printed["sched"], qstat=printed["qstat-Qf"])
    assert asyncio.run(of_pbs(queue="preempt").limits(site)) == PilotLimits()
    with pytest.raises(NotAvailable, match="preempt other jobs"):
        asyncio.run(of_pbs(queue="workq").limits(site))
    assert asyncio.run(of_pbs().idle(Said(pbsnodes=printed["pbsnodes-a"]))) == set(), "a pilot is on each node"
    jobs = Said(qselect="223.pbs1\n224.pbs1\n211.pbs1\n", qstat=printed["qstat-dsv"])
    found = {one.id: (one.state, one.node) for one in asyncio.run(of_pbs(queue="preempt").pilots(jobs, "bftrain-jane"))}
    runs, taken = PilotState.RUNNING, PilotState.TAKEN
    assert found == {"223.pbs1": (runs, "n1"), "224.pbs1": (runs, "n2"), "211.pbs1": (taken, "n1")}


Put = Callable[[str, str], Path]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Return a function that writes a program; PATH has nothing else."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def write(name: str, text: str) -> Path:
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return program

    return write


def looks(scheduler: Scheduler) -> frozenset[str] | None:
    return asyncio.run(scheduler.look())


def test_nodes_that_slurm_or_pbs_calls_idle_are_ours(put: Put, tmp_path: Path) -> None:
    scheduler = made("slurm-nodes", {"partition": "batch"})
    assert (scheduler.available().ok, scheduler.available().reason) == (False, "no command sinfo here")
    put("sinfo", f"echo \"$@\" >>'{tmp_path}/asked'; echo 'nid0001|idle'; echo 'nid0002|idle*'")
    assert scheduler.available().ok
    assert looks(made("slurm-nodes", {"partition": "batch"})) == {"nid0001"}
    assert "--partition=batch" in (tmp_path / "asked").read_text()
    put("pbsnodes", "printf 'n2\\n    state = free\\n'")
    assert looks(made("pbs-nodes", {})) == {"n2"}
    put("pbsnodes", "exit 3")
    assert looks(made("pbs-nodes", {})) is None, "an unreachable server does not mean no nodes"


@pytest.mark.parametrize(
    ("make", "programs"), [(of_slurm, ("sbatch", "squeue", "scancel")), (of_pbs, ("qsub", "qstat", "qdel"))]
)
def test_all_commands_that_are_missing_are_named(make: Callable[[], Any], programs: tuple[str, ...], put: Put) -> None:
    missing = make().available().reason.removeprefix("no command ").removesuffix(" here").split(", ")
    assert set(programs) <= set(missing)
    for name in missing[1:]:
        put(name, "true")
    assert make().available().reason == f"no command {missing[0]} here"
    assert make().available().fix
    put(missing[0], "true")
    assert make().available().ok


@pytest.mark.parametrize(
    ("scheduler", "table", "says"),
    [
        ("slurm", {}, "partition"),
        ("slurm", {"partition": "p", "pendng": 3}, "'pending'"),
        ("slurm", {"partition": "p\n"}, "partition"),
        ("pbs", {"queue": "q\n#PBS -q other"}, "queue"),
        ("slurm", {"partition": "p", "pending": "many"}, "pending"),
        ("slurm", {"partition": "p", "pending": 0}, "pending"),
        ("slurm", {"partition": "p", "lengths_s": [30]}, ">= 60"),
        ("slurm", {"partition": "p", "lengths_s": []}, "lengths_s: must be a list of length >= 1"),
        ("slurm", {"partition": " p"}, "partition"),
        ("slurm", {"partition": "p", "options": "--gres=gpu:1"}, "options"),
        *(
            ("slurm", {"partition": "p", "options": ["--gres=gpu:1", word, "main"]}, "contradicts")
            for word in (
                "--partition=main",
                "--part=main",
                "-pmain",
                "-p",
                "--qos=high",
                "--nodes=2",
                "--requeue",
                "-t",
            )
        ),
        ("slurm-nodes", {"partition": -1}, "partition"),
        ("slurm-nodes", {"poll_s": -1}, "poll_s"),
        ("slurm-nodes", {"partitions": "x"}, "'partition'"),
        ("pbs", {}, "queue"),
        ("pbs", {"queue": "q", "qeue": 1}, "'queue'"),
        ("pbs", {"queue": ""}, "queue"),
        ("pbs", {"queue": "q", "options": ["-q", "main"]}, "queue"),
        ("pbs-nodes", {"json": -1}, "json"),
        ("flux", {"queu": "q"}, "'queue'"),
        ("flux", {"queue": 3}, "queue"),
        ("flux", {"poll_s": 0}, "poll_s"),
        ("flux", {"options": ["--queue=main"]}, "queue"),
        ("local", {"idle": "2@5"}, "second 0"),
        ("local", {"idle": "2@0,3@8,1@4"}, "rise"),
        ("local", {"idle": "2@0,9@1"}, "4 nodes"),
        ("local", {"idle": "two@0"}, "'two@0'"),
        ("local", {"idle": "2@0,3@8", "loop_s": 8.0}, "above the last time, 8"),
        ("local", {"nodes": 0}, "nodes"),
    ],
)
def test_wrong_settings_of_a_scheduler_are_named(scheduler: str, table: dict[str, Any], says: str) -> None:
    with pytest.raises(BftrainError, match=says):
        made(scheduler, table)


@pytest.mark.parametrize(
    ("option", "says"),
    [("--gres=gpu:4", "4 GPUs"), ("--gpus-per-node=a100:2", "2 GPUs"), ("--exclusive=user", "whole nodes")],
)
def test_options_against_single_gpus_are_refused(option: str, says: str) -> None:
    site = replace(SITE, unit="gpu")
    with pytest.raises(BadConfig, match=says) as error:
        registry.load("scheduler", "slurm")({"partition": "pilot", "options": [option]}, site)
    assert error.value.where == "[scheduler] options"


def test_pools_of_one_run_hand_out_the_same() -> None:
    one = {"name": "slurm", "partition": "a", "unit": "gpu"}
    assert [pool.unit for pool in pools_of([one, {**one, "pool": "b"}])] == ["gpu", "gpu"]
    with pytest.raises(BadConfig, match='unit = "node"'):
        pools_of([one, {"name": "slurm", "pool": "b"}])
    with pytest.raises(BftrainError, match="'core'"):
        pools_of({**one, "unit": "core"})


@pytest.mark.parametrize(("scheduler", "table"), [("slurm", {"partition": "p"}), ("pbs", {"queue": "q"})])
def test_the_limits_of_commands_are_known_and_4_a_minute_at_rest(scheduler: str, table: dict[str, Any]) -> None:
    limits = made(scheduler, table).facts().commands_limits
    assert limits["at_rest"] == pytest.approx(4.0, abs=0.25)
    assert limits["submissions"] == 30.0
    assert made(scheduler, {**table, "poll_s": 300.0}).facts().commands_limits["at_rest"] < 3.0


def test_flux_is_asked_for_jobs_twice_in_each_round_and_for_idle_nodes_only_with_a_reserve() -> None:
    assert made("flux", {}).facts().commands_limits["at_rest"] == pytest.approx(60.2)
    assert made("flux", {"reserve": 1}).facts().commands_limits["at_rest"] == pytest.approx(90.2)
