"""Public sets of jobs by name: the columns that identify them, and the meanings of these columns. One row per set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSet:
    """The meanings of a set's columns: ``map`` uses the syntax of the option ``--map``, separated by blanks.

    ``known_by`` are columns that occur together in no other set. ``zone`` is the time zone of its local times.
    ``nodes`` is the machine size if its tables list no nodes. ``rows`` is the list inside a record with the runs of a
    job. ``source`` is the origin; ``tested`` means with rows of the set, not only with its documentation.
    """

    name: str
    about: str
    map: str
    known_by: str
    source: str
    tested: bool = False
    zone: str | None = None
    nodes: int | None = None
    rows: str = ""

    @property
    def columns(self) -> dict[str, str]:
        """The column of each meaning, with its unit."""
        return dict(entry.split("=", 1) for entry in self.map.split())

    def fits(self, names: Iterable[str]) -> bool:
        """Return whether a table with these columns belongs to the set."""
        return set(self.known_by.lower().split()) <= {name.lower() for name in names}


# fmt: off
PUBLIC_SETS: Final = (
    PublicSet(
        name="pm100", about="Marconi100 (PM100), M100's job table", source="zenodo.org/records/10127767",
        map="job=job_id submit=submit_time start=start_time end=end_time state=job_state user=user_id "
        "partition=partition nodes=nodes count=num_nodes_alloc cores=num_cores_alloc gpus=num_gpus_alloc "
        "elapsed=run_time:s limit=time_limit:min",
        known_by="num_nodes_alloc num_gpus_alloc nodes start_time end_time",
    ),
    PublicSet(
        name="adastra", about="Adastra MI250", source="zenodo.org/records/14007065",
        map="job=job_id submit=submit_time start=start_time end=end_time state=job_state user=user_id "
        "partition=partition nodes=nodes count=num_nodes_alloc elapsed=run_time:s limit=time_limit:s",
        known_by="num_nodes_alloc nodes mem_power_consumption node_power_consumption start_time",
    ),
    PublicSet(
        name="fdata", about="Fugaku (F-DATA)", source="zenodo.org/records/11467483",
        map="job=jid user=usr count=nnumr submit=adt start=sdt end=edt elapsed=duration:s limit=elpl:s",
        known_by="jid usr nnumr adt sdt edt",
        nodes=158_976,
    ),
    PublicSet(
        name="alcf", about="job composites of Theta, Polaris, Cooley, Aurora", source="reports.alcf.anl.gov/data",
        map="submit=QUEUED_TIMESTAMP start=START_TIMESTAMP end=END_TIMESTAMP limit=WALLTIME_SECONDS:s "
        "elapsed=RUNTIME_SECONDS:s cluster=MACHINE_NAME job=JOB_NAME count=NODES_USED cores=CORES_USED "
        "user=USERNAME_GENID partition=QUEUE_NAME",
        known_by="QUEUED_TIMESTAMP START_TIMESTAMP END_TIMESTAMP NODES_USED CORES_USED",
    ),
    PublicSet(
        name="mira", about="job composites of Mira", source="github.com/disheng222/LogAider",
        map="submit=QUEUED_TIMESTAMP start=START_TIMESTAMP end=END_TIMESTAMP limit=WALLTIME_SECONDS:s "
        "elapsed=RUNTIME_SECONDS:s cluster=MACHINE_NAME job=JOBID count=USED_NODES cores=USED_CORES "
        "user=COBALT_USER_NAME_GENID partition=QUEUE_GENID",
        known_by="QUEUED_TIMESTAMP START_TIMESTAMP END_TIMESTAMP USED_NODES USED_CORES",
        tested=True, nodes=49_152,
    ),
    PublicSet(
        name="frontier", about="Frontier's joblive and jobcomplete", source="github.com/ExaDigiT/RAPS",
        map="job=allocation_id submit=time_submission start=time_start end=time_end nodes=xnames "
        "count=node_count state=state_current limit=time_limit:s",
        known_by="allocation_id time_submission time_start time_end xnames",
    ),
    PublicSet(
        name="lassen", about="Lassen's final_csm_allocation_history_hashed.csv", source="github.com/LLNL/LAST",
        map="job=allocation_id submit=job_submit_time start=begin_time end=end_time count=num_nodes "
        "user=hashed_user_id limit=time_limit:s partition=queue",
        known_by="allocation_id job_submit_time begin_time end_time num_nodes",
        zone="America/Los_Angeles", nodes=792,
    ),
    PublicSet(
        name="kestrel", about="Kestrel", source="github.com/ExaDigiT/RAPS",
        map="job=job_id user=account submit=submit_time start=start_time end=end_time count=nodes_required "
        "elapsed=wall_time:s state=job_state",
        known_by="job_id nodes_required wall_time start_time end_time",
        zone="America/Denver",
    ),
    PublicSet(
        name="eagle", about="Eagle", source="github.com/NREL/eagle-jobs",
        map="job=job_id user=user submit=submit_time start=start_time end=end_time count=nodes_req "
        "cores=processors_req gpus=gpus_req elapsed=run_time:s limit=wallclock_req:s state=state "
        "partition=partition",
        known_by="wallclock_req nodes_req processors_req start_time end_time",
        tested=True,
    ),
    PublicSet(
        name="supercloud", about="MIT Supercloud's slurm-log.csv", source="dcc.mit.edu/data",
        map="job=id_job user=id_user submit=time_submit:s start=time_start:s end=time_end:s nodes=nodelist "
        "count=nodes_alloc cores=cpus_req limit=timelimit:min partition=partition state=state",
        known_by="id_job time_start time_end nodelist nodes_alloc",
    ),
    PublicSet(
        name="philly", about="Philly's cluster_job_log, by attempt", source="github.com/msr-fiddle/philly-traces",
        map="job=jobid user=user submit=submitted_time start=attempts.start_time end=attempts.end_time "
        "nodes=attempts.detail.ip gpus=attempts.detail.gpus partition=vc",
        known_by="jobid attempts submitted_time vc",
        tested=True, zone="America/Los_Angeles", rows="attempts",
    ),
    PublicSet(
        name="helios", about="Helios' cluster_log.csv", source="github.com/S-Lab-System-Group/HeliosData",
        map="job=job_id user=user count=node_num cores=cpu_num gpus=gpu_num state=state submit=submit_time "
        "start=start_time end=end_time elapsed=duration:s partition=vc",
        known_by="job_id vc node_num gpu_num start_time end_time",
        tested=True, zone="Asia/Shanghai",
    ),
    PublicSet(
        name="acme", about="Acme's trace_seren.csv, trace_kalos.csv", source="github.com/InternLM/AcmeTrace",
        map="job=job_id user=user count=node_num cores=cpu_num gpus=gpu_num state=state submit=submit_time "
        "start=start_time end=end_time elapsed=duration:s partition=type",
        known_by="job_id node_num gpu_num gpu_time start_time end_time",
        tested=True,
    ),
    PublicSet(
        name="pai", about="Alibaba PAI's pai_instance_table.csv, by instance", source="github.com/alibaba/clusterdata",
        map="job=inst_name start=start_time:s end=end_time:s nodes=machine state=status",
        known_by="inst_name worker_name start_time end_time machine",
        tested=True,
    ),
    PublicSet(
        name="batsim", about="Batsim's PREFIX_jobs.csv", source="batsim.readthedocs.io",
        map="job=job_id submit=submission_time:s start=starting_time:s end=finish_time:s "
        "nodes=allocated_resources:intervals count=requested_number_of_resources limit=requested_time:s",
        known_by="workload_name starting_time finish_time allocated_resources",
    ),
    PublicSet(
        name="batsim-processors", about="Batsim before version 3", source="github.com/lccasagrande/DeepShutdown",
        map="job=job_id submit=submission_time:s start=starting_time:s end=finish_time:s "
        "nodes=allocated_processors:intervals count=requested_number_of_processors "
        "limit=requested_time:s",
        known_by="workload_name starting_time finish_time allocated_processors",
        tested=True,
    ),
    PublicSet(
        name="sacct-json", about="sacct --json since Slurm 21.08", source="slurm.schedmd.com/sacct.html",
        map="job=job_id user=user submit=time.submission:s start=time.start:s end=time.end:s "
        "elapsed=time.elapsed:s nodes=nodes count=allocation_nodes cores=tres.allocated.cpu "
        "gpus=tres.allocated.gpu limit=time.limit:min state=state.current partition=partition",
        known_by="job_id allocation_nodes time.start time.end nodes",
    ),
)
# fmt: on
