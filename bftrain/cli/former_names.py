"""Former names of commands: renamed ones work for one release and print the new name; removed ones fail with a hint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

RENAMED: Final = {
    "anonymise": "slice --anonymise",
    "cancel": "task cancel",
    "completion": "doctor --completion",
    "drain": "live drain",
    "elastic": "check",
    "elastic check": "check",
    "export": "report",
    "page": "live page",
    "pause": "task pause",
    "queue": "status --tasks",
    "resume": "task resume",
    "tasks": "generate",
    "tasks generate": "generate tasks",
    "tasks import": "generate from-trace",
    "tasks profiles": "generate profiles",
    "usage": "task usage",
}
_FULL_COMMANDS: Final = {"export": "report DIR -o FILE.json"}  # present names that need an option
_RESUBMIT: Final = "cancel the task, and submit it again with --folder FOLDER: it continues from its saved state"
REMOVED: Final = {
    "api": "use bftrain live --example openapi, grafana or alerts",
    "top": "use bftrain status --watch, or bftrain live page",
    "edit": _RESUBMIT,
    "task edit": _RESUBMIT,
    **dict.fromkeys(("hooks", "live hooks"), "use bftrain live --example slurm-hook, or pbs-hook, and bftrain status"),
    "live measure": "run python examples/live/measure_waits.py",
    "live join": "each user starts a live run of their own: bftrain live --config site.toml",
    "live members": "each user starts a live run of their own, which bftrain status describes",
    "journal profiles": "use bftrain journal export --tasks, whose tasks have their measured speeds",
    "journal repair": "put back a backup, or run (umask 077; sqlite3 live.db .recover | sqlite3 new.db)",
}


class Renaming(NamedTuple):
    """The arguments with the current name, and a hint for people who typed the former one."""

    hint: str
    arguments: list[str]


def renaming_of(arguments: Sequence[str]) -> Renaming | None:
    """Return the renaming of the command at the start of the arguments; ``None`` if its name is not a former one."""
    for count in (2, 1):
        old = " ".join(arguments[:count])
        new = RENAMED.get(old)
        if new is not None:
            hint = f"bftrain {old} is now bftrain {_FULL_COMMANDS.get(old, new)}; the old name will be removed"
            return Renaming(hint, [*new.split(), *arguments[count:]])
    return None
