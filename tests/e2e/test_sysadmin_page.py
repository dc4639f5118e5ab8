"""What docs/how-to/sysadmin.md tells administrators, on a real Slurm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.slurm import Slurm

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sysadmin.md"


@pytest.mark.slurm
def test_the_cap_keeps_pilots_in_their_partition_and_short() -> None:
    found = re.search(r"```lua\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    cluster = Slurm(1, "JobSubmitPlugins=lua")
    (Path(cluster.home) / "job_submit.lua").write_text(found[1])
    job = ("sbatch", "--job-name=bftrain-physics", "--wrap=true")
    with cluster:
        refused = cluster.run(*job, "--partition=main", check=False)
        assert "pilots of bftrain belong in the partition pilot" in refused.stderr
        cluster.run(*job, "--partition=pilot", "--time=1440", "--hold")
        cluster.run("sbatch", "--job-name=other", "--wrap=true", "--time=1440", "--hold")
        listed = cluster.run("squeue", "--noheader", "--format=%j %l").stdout.splitlines()
        assert sorted(listed) == ["bftrain-physics 12:00:00", "other 1-00:00:00"]
