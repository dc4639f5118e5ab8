"""Tracebacks of scripts, as if the script had been run alone: without what ran it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

from bftrain_elastic.errors import ElasticError

_OURS: Final = str(Path(__file__).parents[1])
_RUNPY: Final = "<frozen runpy>"


def of_script(error: BaseException) -> str:
    """Give the traceback of what ended a script."""
    return "".join(_without_us(traceback.TracebackException.from_exception(error), error).format())


def _without_us(shown: traceback.TracebackException, error: BaseException) -> traceback.TracebackException:
    for part, cause in ((shown.__cause__, error.__cause__), (shown.__context__, error.__context__)):
        if part is not None and cause is not None:
            _without_us(part, cause)
    ours = [frame.filename == _RUNPY or frame.filename.startswith(_OURS) for frame in shown.stack]
    # What breaks inside of us is shown as it is, unless it is said in words
    if ours and (not ours[-1] or isinstance(error, ElasticError) or frozen(shown.stack)):
        kept = [frame for frame, hidden in zip(shown.stack, ours, strict=True) if not hidden]
        shown.stack = traceback.StackSummary.from_list(kept)
    return shown


def frozen(stack: traceback.StackSummary) -> bool:
    """Tell whether it broke before the script began: it has a syntax error, or cannot be read."""
    return stack[-1].filename == _RUNPY
