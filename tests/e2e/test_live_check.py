"""``bftrain live check`` next to a real Slurm: it passes for good settings, and names each wrong one with its fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.program import bftrain
from tests.helpers.slurm import Slurm

pytestmark = pytest.mark.slurm

SITE = """
name = "ann"
folder = "shared"
state = "state"
[scheduler]
name = "slurm"
{scheduler}
[agents]
{agents}
"""
GOOD, REACHED = 'partition = "pilot"', 'listen = "0.0.0.0"'


def checked(cluster: Slurm, folder: Path, scheduler: str, agents: str = REACHED) -> tuple[int, list[dict[str, Any]]]:
    site = folder / "site.toml"
    site.write_text(SITE.format(scheduler=scheduler, agents=agents), encoding="utf-8")
    env = {name: cluster.env[name] for name in ("PATH", "SLURM_CONF")}
    ended = bftrain("live", "check", "--config", site, "--json", **env)
    return ended.code, json.loads(ended.out)


def test_good_settings_pass_and_nothing_is_changed(slurm_cluster: Slurm, tmp_path: Path) -> None:
    code, found = checked(slurm_cluster, tmp_path, GOOD)
    assert (code, {one["state"] for one in found}) == (0, {"ok"}), found
    topics = {one["topic"] for one in found}
    assert topics == {"decisions", "folder", "reachability", "scheduler", "preemption", "limits", "submission", "hooks"}
    assert [path.name for path in tmp_path.iterdir()] == ["site.toml"]
    assert slurm_cluster.run("squeue", "-h").stdout == ""


@pytest.mark.parametrize(
    ("scheduler", "agents", "topic", "detail", "fix"),
    [
        ('partition = "none"', REACHED, "scheduler", "partition 'none': Slurm has no such partition", "see sinfo"),
        ('partition = "main"', REACHED, "preemption", "PreemptMode=OFF", "PreemptMode=CANCEL"),
        ('partition = "main"', REACHED, "preemption", "PriorityTier=100 is not below", "a higher PriorityTier"),
        (f'{GOOD}\noptions = ["--constraint=gold"]', REACHED, "submission", "rejected", "[scheduler]"),
        (f'{GOOD}\nspool = "/no/such"', REACHED, "hooks", "cannot be used as a spool", "docs/how-to/hooks.md"),
        (f'{GOOD}\nspool_writers = ["no-such-user"]\nspool = "SPOOL"', REACHED, "hooks", "no-such-user", "user name"),
        (GOOD, 'listen = "127.0.0.1"', "reachability", "nodes cannot reach 127.0.0.1", 'listen = "0.0.0.0"'),
        (GOOD, f'{REACHED}\nreach = "no-such-host.invalid"', "reachability", "no-such-host", "know this machine"),
    ],
)
def test_each_wrong_setting_is_named_with_its_fix(
    slurm_cluster: Slurm, tmp_path: Path, scheduler: str, agents: str, topic: str, detail: str, fix: str
) -> None:
    (tmp_path / "spool").mkdir(mode=0o700)
    code, found = checked(slurm_cluster, tmp_path, scheduler.replace("SPOOL", str(tmp_path / "spool")), agents)
    problems = [one for one in found if one["topic"] == topic and one["state"] == "problem"]
    assert code == 4
    assert any(detail in one["detail"] and fix in one["fix"] for one in problems), found


def test_a_folder_that_others_may_write_is_a_problem(slurm_cluster: Slurm, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    code, found = checked(slurm_cluster, tmp_path, GOOD)
    (problem,) = [one for one in found if one["state"] == "problem"]
    assert (code, problem["topic"], "can write there" in problem["detail"]) == (4, "folder", True)
    assert problem["fix"].startswith("chmod go-w ")
