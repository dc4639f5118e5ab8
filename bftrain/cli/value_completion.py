"""Values that the Tab key offers: names of parts, and files that end as the option asks for."""

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


def of_words(*words: str) -> Completer:
    """Offer these words."""
    return lambda _ctx, _param, incomplete: _beginning(words, incomplete)


def of_parts(*ports: Port, words: Sequence[str] = (), own: bool = False, listed: bool = False) -> Completer:
    """Offer the parts of these ports and some ``words``; with ``own`` also files for ``FILE.py:NAME``.

    Of a ``listed`` value, with commas between, the part behind the last comma is completed.
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


def of_files(*suffixes: str) -> Completer:
    """Offer files with these suffixes; where no such file begins so, the shell offers folders."""
    return lambda _ctx, _param, incomplete: _files(suffixes, incomplete)


def _beginning(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in dict.fromkeys(words) if fold(word).startswith(fold(incomplete))]


def _names_in(incomplete: str) -> list[CompletionItem]:
    """Offer ``FILE.py:NAME`` for what a file defines; it is read and not run."""
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
    # bash begins its list again at a folder, so that stands first; it offers folders only where there is nothing else
    items = [CompletionItem(f"{folder}{slash}{name}") for name in names if name.startswith(begin)]
    return [CompletionItem(incomplete, type="dir"), *items]


LOG_FILES: Final = of_files(".npz", ".csv", ".parquet")
TASK_FILES: Final = of_files(".toml", ".csv")
TOML_FILES: Final = of_files(".toml")
# Settings whose values can be offered; what a policy is depends on the command
OF_SETTING: Final[Mapping[str, Completer]] = {
    "solver": of_parts("solver"),
    "fallback": of_parts("solver"),
    "objective": of_parts("objective", own=True),
    "admission": of_parts("admission", own=True),
    "placement": of_parts("placement", words=("auto",)),
    "horizon_s": of_words("auto"),
    "decision_latency_s": of_words("measured"),
    "progress": of_words("memory", "memory:", "disk:", "task"),
    "metrics": of_parts("metric", own=True, listed=True),
}
