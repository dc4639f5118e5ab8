"""The module ``pbs`` as PBS gives it to hooks, and a hook that is run with it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from bftrain.live.schedulers import hook_files

HOOK = Path(hook_files.__file__).with_name("pbs_hook.py")
EVENTS = ("RUNJOB", "EXECJOB_BEGIN", "EXECJOB_EPILOGUE", "EXECJOB_END", "EXECHOST_PERIODIC")


class Accepted(SystemExit):
    """How PBS ends a hook that accepts its event."""


def run_hook(spool: Path, event: str, job: object) -> list[str]:
    return run_hook_text(HOOK.read_text().replace("@SPOOL@", str(spool)), event, job)


def run_hook_text(text: str, event: str, job: object) -> list[str]:
    """Run a hook for an event as PBS does; gives what it logged. It fails if the event was not accepted."""
    logged: list[str] = []

    def accept() -> None:
        raise Accepted

    module: Any = ModuleType("pbs")
    for number, name in enumerate(EVENTS):
        setattr(module, name, 1 << number)
    module.LOG_WARNING = 4
    module.logmsg = lambda _level, text: logged.append(text)
    module.event = lambda: SimpleNamespace(type=getattr(module, event), job=job, accept=accept)
    code = compile(text, "hook", "exec")
    with mock.patch.dict(sys.modules, pbs=module):
        try:
            exec(code, {"__name__": "hook"})  # noqa: S102 - our own file
        except Accepted:
            return logged
    raise AssertionError("the event was not accepted")
