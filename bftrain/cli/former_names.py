"""Former names of commands: renamed ones work for one release and print the new name; removed ones fail with a hint."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

RENAMED: Final = {
    "anonymise": "slice --anonymise",
    "api": "live api",
    "cancel": "task cancel",
    "check": "import --dry-run",  # only for a log or records: bftrain check now takes a training script
    "completion": "doctor --completion",
    "drain": "live drain",
    "edit": "task edit",
    "elastic": "check",
    "elastic check": "check",
    "export": "report",
    "hooks": "live hooks",
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
_IN_FULL: Final = {"export": "report DIR -o FILE.json"}  # present names that need an option
REMOVED: Final = {
    "top": "use bftrain status --watch, or bftrain live page",
    "live measure": "run python examples/live/measure_waits.py",
    "live join": "each user runs a live run: bftrain live --config site.toml",
    "live members": "each user runs a live run, which bftrain status describes",
    "journal repair": "put back a backup, or run (umask 077; sqlite3 live.db .recover | sqlite3 new.db)",
}


# What distinguishes the program that bftrain check takes now from the records that it took formerly
_OPTIONS_OF_PROGRAMS: Final = frozenset({"--launcher", "--backend", "--preload", "--steps", "--patience"})
_SUFFIXES_OF_PROGRAMS: Final = frozenset({".py", ".sh"})
_HEADS_OF_PROGRAMS: Final = (b"#!", b"\x7fELF")


class Renaming(NamedTuple):
    """The arguments with the present name, and a hint for people who typed the former one."""

    hint: str
    arguments: list[str]


def renaming_of(arguments: Sequence[str]) -> Renaming | None:
    """Return the renaming of the command at the start of the arguments; ``None`` if its name is not a former one."""
    for count in (2, 1):
        old = " ".join(arguments[:count])
        new = RENAMED.get(old)
        if new is not None and (old != "check" or _is_data(arguments[1:])):
            then = "check itself takes a training script" if old == "check" else "the old name will be removed"
            hint = f"bftrain {old} is now bftrain {_IN_FULL.get(old, new)}; {then}"
            return Renaming(hint, [*new.split(), *arguments[count:]])
    return None


def _is_data(arguments: Sequence[str]) -> bool:
    """Return whether the first file in the arguments is no program, so it must be a log or a scheduler's records."""
    from bftrain.files import head_of

    for word in arguments:
        if word == "--" or word.partition("=")[0] in _OPTIONS_OF_PROGRAMS:
            return False
        if word == "-":
            return True
        path = Path(word)
        with suppress(OSError):
            if path.exists() and not path.is_dir():
                if not path.is_file():  # a pipe, which must not be read here
                    return True
                return path.suffix not in _SUFFIXES_OF_PROGRAMS and not head_of(path).startswith(_HEADS_OF_PROGRAMS)
    return False
