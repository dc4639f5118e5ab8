"""Run: a task's job in task files, requests and the task store; also helpers to describe and bound fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, get_type_hints

import msgspec

from bftrain.values import checks, wire

END: Final = r"$(?!\n)"  # end of a pattern; $ alone also matches before a newline
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
_ABSOLUTE: Final = wire.pattern_of("an absolute path", f"^(/|{END})")
_VARIABLE: Final = wire.pattern_of("a name without '='", "^[^=]+$")
_LARGEST_EXIT_CODE: Final = 125  # shells use larger codes for commands that could not run or were killed
_TRY_AGAIN: Final = 75  # exit code of programs that want to be restarted later
_MOST_WORKERS: Final = 65_536  # per node
_LETTERS: Final = 100_000  # limit of all arguments, setup lines and variables of a job together


def said(words: str, *, schema: dict[str, Any] | None = None, **bounds: Any) -> msgspec.Meta:  # noqa: ANN401 - of Meta
    """Describe a field; its ``bounds`` are checked when it is decoded, ``schema`` is for readers alone."""
    return msgspec.Meta(description=words, extra_json_schema=schema, **bounds)


def described(struct: type[msgspec.Struct], field: str) -> str:
    """Return the description of a field declared by :func:`said`."""
    metadata = get_type_hints(struct, include_extras=True)[field].__metadata__
    return next(part.description for part in metadata if isinstance(part, msgspec.Meta) and part.description)


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The job of a task: a launcher's settings, see docs/how-to/parts.md. Without ``folder`` a new one is made."""

    argv: Annotated[
        tuple[Annotated[str, said("A word.", min_length=1)], ...],
        said("A script or command, and its arguments.", min_length=1),
    ]
    folder: Annotated[
        str, said("Folder of commits and logs, an absolute path; empty: a new one.", pattern=_ABSOLUTE)
    ] = ""
    cwd: Annotated[str, said("Working directory, an absolute path.", pattern=_ABSOLUTE)] = "/"
    env: Annotated[Mapping[Annotated[str, msgspec.Meta(pattern=_VARIABLE)], str], said("Environment variables.")] = {}
    stop_grace_s: Annotated[float, said("Seconds to save its state when it is stopped.", ge=0)] = 10.0
    workers_per_node: Annotated[int, said("Workers per node; 0: one per slot.", ge=0, le=_MOST_WORKERS)] = 0
    finish_code: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=_LARGEST_EXIT_CODE)] | None,
        said("Exit code of a finished program, not 75; after other exits it is restarted."),
    ] = None
    finish_file: Annotated[str, said("File of a program that finished with exit code 0; relative to the folder.")] = ""
    stall_limit_s: Annotated[
        NotNegative | None,
        said("Return its nodes after these seconds without progress; 0: never; null: the site's default."),
    ] = None

    environment: Annotated[str, said("One of the site's environments; empty: its default.")] = ""
    setup: Annotated[tuple[str, ...], said("Bash lines before the command, after the environment's.")] = ()
    prefix: Annotated[
        tuple[Annotated[str, said("A word.", min_length=1)], ...],
        said("Words before the command, such as apptainer exec IMAGE; empty: the environment's."),
    ] = ()
    python: Annotated[str, said("Python for the script; empty: the environment's, or the nodes'.")] = ""

    def __post_init__(self) -> None:
        """Check the rules that bounds on single fields cannot express."""
        checks.finite(self)
        words = (*self.argv, *self.setup, *self.prefix, *self.env.keys(), *self.env.values())
        if any("\0" in word for word in (*words, self.cwd, self.folder, self.finish_file, self.python)):
            checks.reject(self, "argv", "contains a NUL character")
        if sum(map(len, words)) > _LETTERS:
            checks.reject(self, "argv", f"is too long together with env: more than {_LETTERS} characters")
        if self.finish_code == _TRY_AGAIN:
            checks.reject(
                self, "finish_code", f"must not be {_TRY_AGAIN}, which programs use to announce that they continue"
            )
