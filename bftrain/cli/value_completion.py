"""Completion of option values: part names, and files with the option's suffix."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from bftrain.errors import fold

if TYPE_CHECKING:
    from bftrain.registry import Port

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_PYTHON: Final = ".py"


def complete_words(*words: str) -> Completer:
    """Return a completer for these words."""
    return lambda _ctx, _param, incomplete: _beginning(words, incomplete)


def complete_parts(*ports: Port, words: Sequence[str] = (), own: bool = False, listed: bool = False) -> Completer:
    """Return a completer for the parts of these ports and some ``words``; with ``own`` also for ``FILE.py:NAME``.

    A ``listed`` value has commas, and the part behind the last comma is completed.
    """

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from bftrain.registry import parts

        known = [name for port in ports for name, part in parts(port).items() if not part.problem]
        before, comma, last = incomplete.rpartition(",") if listed else ("", "", incomplete)
        found = _beginning((*known, *words), last)
        if own and f"{_PYTHON}:" in last:
            found = _names_in(last)
        elif own and not found:
            found = _files((_PYTHON,), last)
        return [CompletionItem(f"{before}{comma}{item.value}", type=item.type) for item in found]

    return complete


def complete_files(*suffixes: str) -> Completer:
    """Return a completer for files with these suffixes; without any such file, the shell offers folders."""
    return lambda _ctx, _param, incomplete: _files(suffixes, incomplete)


def _beginning(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in dict.fromkeys(words) if fold(word).startswith(fold(incomplete))]


def _names_in(incomplete: str) -> list[CompletionItem]:
    """Return completions of ``FILE.py:NAME`` from the definitions in a file, which is parsed and not run."""
    file, _, name = incomplete.rpartition(":")
    try:
        body = ast.parse(Path(file).expanduser().read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    named = [each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    public = [each for each in named if name or not each.startswith("_")]
    return [CompletionItem(f"{file}:{each}") for each in public if each.startswith(name)]


def _files(suffixes: Sequence[str], incomplete: str) -> list[CompletionItem]:
    folder, slash, begin = incomplete.rpartition("/")
    if not slash and begin.startswith("~"):
        return [CompletionItem(incomplete, type="dir")]
    place = Path(f"{folder}{slash}" or ".").expanduser()
    try:
        names = sorted(path.name for path in place.iterdir() if path.name.endswith(tuple(suffixes)) and path.is_file())
    except OSError:
        names = []
    # bash restarts its list at a folder, so a folder comes first; folders are offered only as a last resort
    items = [CompletionItem(f"{folder}{slash}{name}") for name in names if name.startswith(begin)]
    return [CompletionItem(incomplete, type="dir"), *items]


LOG_FILES: Final = complete_files(".npz", ".csv", ".parquet")
TASK_FILES: Final = complete_files(".toml", ".csv")
TOML_FILES: Final = complete_files(".toml")
# Settings with completion; the kind of policy depends on the command
OF_SETTING: Final[Mapping[str, Completer]] = {
    "solver": complete_parts("solver"),
    "fallback": complete_parts("solver"),
    "objective": complete_parts("objective", own=True),
    "admission": complete_parts("admission", own=True),
    "placement": complete_parts("placement", words=("auto",)),
    "horizon_s": complete_words("auto"),
    "decision_latency_s": complete_words("measured"),
    "progress": complete_words("memory", "memory:", "copies", "copies:", "disk:", "task"),
    "metrics": complete_parts("metric", own=True, listed=True),
}
