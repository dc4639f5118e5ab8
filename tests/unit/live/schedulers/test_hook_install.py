"""``bftrain hooks``: the hook is where the scheduler finds it, the spool is as it must be, and people know the rest."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bftrain import BadInput, NotAvailable, UsageError
from bftrain.live.schedulers.hook_install import hook_text, install
from tests.helpers.program import bftrain
from tests.helpers.schedulers import HookSpool

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")


def test_a_hook_and_a_spool_are_made_and_the_rest_is_explained(tmp_path: Path) -> None:
    spool, hook = tmp_path / "var" / "spool", tmp_path / "etc" / "hook"
    done = install("slurm", spool=spool, hook=hook)
    assert stat.S_IMODE(hook.stat().st_mode) == 0o755
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700
    assert f"spool='{spool}'" in hook.read_text()
    assert done.for_scheduler == f"PrologSlurmctld={hook}\nEpilogSlurmctld={hook}"
    assert done.for_site == f'spool = "{spool}"'
    HookSpool(spool).open()
    assert install("slurm", spool=spool, hook=hook) == done, "twice is fine"
    assert [path.name for path in hook.parent.iterdir()] == ["hook"]


@root_only
def test_a_spool_for_another_writer_gives_it_write_access_and_no_user_read_access(tmp_path: Path) -> None:
    done = install("slurm", spool=tmp_path / "s", hook=tmp_path / "h", writer="daemon")
    about = (tmp_path / "s").stat()
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o730, 0)
    assert about.st_gid != 0
    assert done.for_site.endswith('spool_writers = ["daemon"]')
    install("slurm", spool=tmp_path / "s", hook=tmp_path / "h", owner="daemon")
    about = (tmp_path / "s").stat()
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o700, 1)


def test_for_pbs_the_commands_of_qmgr_are_shown(tmp_path: Path) -> None:
    done = install("pbs", spool=tmp_path / "s", hook=tmp_path / "hook's.py")
    assert "execjob_begin,execjob_epilogue,execjob_end" in done.for_scheduler
    assert done.for_scheduler.splitlines()[-1].endswith("hook'\"'\"'s.py''")


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "epilog"
    theirs.write_text("#!/bin/sh\nprecious\n")
    with pytest.raises(UsageError, match="is not a hook that bftrain wrote, and is left unchanged"):
        install("slurm", spool=tmp_path / "s", hook=theirs)
    assert "precious" in theirs.read_text()
    (tmp_path / "link").symlink_to(theirs)
    with pytest.raises(UsageError, match="is not a hook that bftrain wrote, and is left unchanged"):
        install("slurm", spool=tmp_path / "s", hook=tmp_path / "link")
    (tmp_path / "file").symlink_to(tmp_path)
    with pytest.raises(NotAvailable, match="no folder"):
        install("slurm", spool=tmp_path / "file", hook=tmp_path / "h")


@pytest.mark.parametrize("name", ["it's", 'a"b', "a\\b", "a\nb"])
def test_names_that_would_need_quoting_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="plainer"):
        hook_text("slurm", tmp_path / name)


def test_the_command_installs_and_shows(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    done = bftrain("hooks", "install", "slurm", "--spool", spool, "--to", tmp_path / "hook")
    assert done.code == 0
    assert f"PrologSlurmctld={tmp_path / 'hook'}\nEpilogSlurmctld={tmp_path / 'hook'}" in done.out
    assert "restart slurmctld" in done.out, "after scontrol reconfigure hooks are listed, and do not run"
    assert f'spool = "{spool}"' in done.out
    shown = bftrain("hooks", "show", "slurm", "--spool", spool)
    assert shown.out == (tmp_path / "hook").read_text()
    assert (
        bftrain("hooks", "install", "slurm", "--spool", spool, "--to", tmp_path / "hook", "--writer", "no!").code == 3
    )
