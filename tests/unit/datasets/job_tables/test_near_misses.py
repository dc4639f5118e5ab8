"""Files that are nearly records of jobs, and options that leave none of them, are answered with what helps."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from bftrain import BadInput
from tests.helpers.records import imported
from tests.helpers.samples import DAY

NEAR_MISSES: Final = [
    ("1|2026-01-05T00:00:00|2026-01-05T02:00:00|n1\n", "4 cells with '|' between them, but no header", "--columns"),
    ("1,1767571200,1767574800,n1\n", "4 cells with ',' between them, but no header", "--columns"),
    ("some;words;here\n1;2;3\n", "no known column of jobs: some, words, here", "--map start=COL"),
    ('{"a": 1, "b": 2}\n', "without a known field of jobs: a, b", "--map start=FIELD"),
    ('{"jobs": []}', "JSON without a job record", "objects with the fields of jobs"),
    ('<?xml version="1.0"?><Data/>', "XML", "JSON or CSV"),
    ("JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n", "output of squeue", "sacct -a"),
    ("JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST\n", "output of bjobs", "lsb.acct"),
    ("\nJob <101>, User <ann>, Project <default>, Command <run>\n", "output of bhist -l", "lsb.acct"),
    ("JobId=1 JobName=a job\n   UserId=ann(501) GroupId=staff(16)\n", "output of scontrol show job", "sacct -a"),
    ("JobId=1 UserId=ann(501) GroupId=staff(16) Name=a JobState=COMPLETED\n", "jobcomp/filetxt", "sacct -a"),
    ("[2026-11-20T09:44:28.863] sched: Allocate JobId=1 NodeList=n1\n", "a log of slurmctld", "sacct -a"),
    ("VERSION 310\n1 1 4 ann staff 3600 Completed [batch:1]\n", "events of Moab or Maui", "records of Torque"),
    (f"00:01:00 {DAY} job 1.srv JOBEND 1 4 ann staff 3600\n", "events of Moab or Maui", "records of Torque"),
    ("Job id            Name             User              Time Use S Queue\n", "output of qstat", "accounting"),
    ("job-ID  prior   name       user         state submit/start at     queue\n", "output of qstat", "qacct -j"),
    ("Cluster NodeName TimeStart TimeEnd\n------- -------- --------- -------\n", "cut to a width", "--parsable2"),
    ('{"Start": {"0": 1}, "End": {"0": 2}, "JobID": {"0": 3}, "NodeList": {"0": 4}}', "by columns", "records"),
    ("JobID|Start|End\n1|1767571200|1767574800\n", "no job lists its nodes", "--map nodes=COL"),
    ("JobID|Start|NodeList\n1|1767571200|n1\n", "missing: its end", "--map start=COL"),
]


@pytest.mark.parametrize(("text", "what", "fix"), NEAR_MISSES)
def test_a_near_miss_names_what_helps(tmp_path: Path, text: str, what: str, fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        imported(tmp_path, text)
    assert what in caught.value.what
    assert fix in (caught.value.fix or "")


@pytest.mark.parametrize(
    ("options", "fix"), [({"nodes": ("m1",)}, "--nodes contains none"), ({"preemptible": ("a",)}, "omit --preemptible")]
)
def test_options_that_leave_nothing_are_named(tmp_path: Path, options: dict[str, tuple[str, ...]], fix: str) -> None:
    text = f"JobID|Partition|Start|End|NodeList\n1|a|{DAY}|{DAY + 10}|n1\n"
    with pytest.raises(BadInput, match="no row describes") as caught:
        imported(tmp_path, text, **options)
    assert fix in (caught.value.fix or "")
