"""Hooks that a scheduler runs when jobs start and end, and how they are installed.

The files in this folder are copied to the scheduler's, not imported.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
import time
from importlib import resources
from pathlib import Path
from typing import Final, Literal

import msgspec

from bftrain.errors import BadInput
from bftrain.files import overwrite_error, whole_file
from bftrain.live.schedulers.hooks import check_folder, unfit

Kind = Literal["slurm", "pbs"]

_FILES: Final = {"slurm": "slurm.sh", "pbs": "pbs_hook.py"}
_OURS: Final = "Tells bftrain that a job of"
_SLURM: Final = "PrologSlurmctld={hook}\nEpilogSlurmctld={hook}"
_PBS: Final = """\
qmgr -c 'create hook bftrain'
qmgr -c 'set hook bftrain event = "execjob_begin,execjob_epilogue,execjob_end"'
qmgr -c 'set hook bftrain alarm = 5'
qmgr -c 'import hook bftrain application/x-python default {hook}'"""


class InstalledHooks(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were made, and the lines to add to the settings of the scheduler and the site."""

    hook: str
    spool: str
    for_scheduler: str
    for_site: str


def hook_text(kind: Kind, spool: Path) -> str:
    """Return the hook that writes into ``spool``."""
    path = str(spool.absolute())
    if not path.isprintable() or set(path) & set("'\"\\"):
        raise BadInput("has letters that no hook should have to quote", where=path, fix="choose a plainer name")
    text = resources.files(__name__).joinpath(_FILES[kind]).read_text(encoding="utf-8")
    return text.replace("@SPOOL@", path)


def install(kind: Kind, *, spool: Path, hook: Path, owner: str = "", writer: str = "root") -> InstalledHooks:
    """Write the hook and make the spool: ``owner`` runs bftrain, ``writer`` runs the hook."""
    text = hook_text(kind, spool)
    reader, author = _user(owner) if owner else pwd.getpwuid(os.geteuid()), _user(writer)
    _make_spool(spool, reader, author)
    if hook.is_symlink() or (hook.exists() and (not hook.is_file() or _OURS not in hook.read_text(errors="replace"))):
        raise overwrite_error(hook, "is not a hook that bftrain wrote")
    hook.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(hook) as file:  # a scheduler never runs a partial hook
        file.write(text.encode())
        os.fchmod(file.fileno(), 0o755)
    path = str(hook.absolute())
    believed = "" if author.pw_uid in {0, reader.pw_uid} else f'\nspool_writers = ["{writer}"]'
    return InstalledHooks(
        hook=path,
        spool=str(spool.absolute()),
        for_scheduler=_SLURM.format(hook=path) if kind == "slurm" else _PBS.format(hook=shlex.quote(path)),
        for_site=f'spool = "{spool.absolute()}"{believed}',
    )


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise BadInput("there is no such user", where=name) from error


def _make_spool(spool: Path, reader: pwd.struct_passwd, author: pwd.struct_passwd) -> None:
    """Make a folder owned by ``reader``, into which only ``author`` may write files."""
    shared = author.pw_uid not in {0, reader.pw_uid}
    try:
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = spool.lstat()
        if not stat.S_ISDIR(about.st_mode):
            raise unfit(spool, "is no folder", "choose another name")
        if about.st_uid != reader.pw_uid or (shared and about.st_gid != author.pw_gid):
            os.chown(spool, reader.pw_uid, author.pw_gid if shared else reader.pw_gid)
        spool.chmod(0o730 if shared else 0o700)
    except PermissionError as error:
        what = f"cannot be given to {reader.pw_name} and {author.pw_name}: {error.strerror}"
        raise unfit(spool, what, "run this as root") from error
    if reader.pw_uid == os.geteuid():
        check_folder(spool)


def send_check(folder: Path) -> None:
    """Write a test message as a hook does."""
    name = f"check.{os.getpid()}"
    try:
        hidden = folder / f".{name}"
        hidden.write_text(f"bftrain1 check {time.time_ns()} 0 check none {os.geteuid()} .\n", encoding="ascii")
        hidden.chmod(0o644)
        hidden.rename(folder / name)
    except OSError as error:
        fix = "run this as the user who runs the hook or the live run, where the spool is"
        raise unfit(folder, f"cannot be written to: {error.strerror}", fix) from error
