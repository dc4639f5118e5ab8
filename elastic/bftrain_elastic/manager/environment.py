"""The environment of a task: lines of bash before its command, words in front of it, and the Python that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from bftrain_elastic.agent import script
from bftrain_elastic.agent.prefork_server import LAUNCHER

if TYPE_CHECKING:
    from bftrain_elastic.manager.job import LauncherJob

_PYTHON: Final = "python3"  # the Python on PATH after the lines have run, or in the image
_THROUGH_A_STARTER: Final = "horovod"
# The lines are arguments of the command, not text in this program, so they need no quoting. They see no arguments: a
# sourced file would take ours for its own
_BASH: Final = """\
_bftrain_n=$1; shift
_bftrain_lines=("${@:1:_bftrain_n}"); _bftrain_command=("${@:_bftrain_n+1}"); set --
for _bftrain_line in "${_bftrain_lines[@]}"; do
  eval "$_bftrain_line" || { echo "bftrain: setup failed: $_bftrain_line" >&2; exit 1; }
done
exec "${_bftrain_command[@]}"
"""


def is_own(job: LauncherJob) -> bool:
    """Return whether a job runs in its own environment instead of a fork of an agent's prefork server."""
    return bool(job.setup or job.prefix or job.python)


def command(
    job: LauncherJob, argv: Sequence[str], env: Mapping[str, str], *, warm: bool
) -> tuple[tuple[str, ...], bool]:
    """Return the command that an agent runs for ``argv``, and whether a fork of its prefork server can run it.

    In its own environment, a script is run by a new Python that has not preloaded any modules.
    """
    if not is_own(job):
        return tuple(argv), warm
    words = tuple(argv)
    if warm:
        python = job.python or _PYTHON
        starter = ("-m", script.__name__) if env.get(LAUNCHER) == _THROUGH_A_STARTER else ()
        words = (python, *starter, *words)
    words = (*job.prefix, *words)
    if job.setup:
        words = ("bash", "--noprofile", "--norc", "-c", _BASH, "bash", f"{len(job.setup)}", *job.setup, *words)
    return words, False
