"""The pages on commands, generated from the commands themselves so that both always agree.

Plain functions from click's commands to Markdown; ``site_hooks.py`` hands the pages to MkDocs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Final

import click

from bftrain import errors
from bftrain.cli.command_help import DURATION, DocumentedCommand
from bftrain.cli.command_table import COMMANDS, SECTIONS
from bftrain.cli.main import main
from bftrain.durations import FORMS

FOLDER: Final = "reference/commands"

_DEFAULT: Final = re.compile(r"^(?P<words>.*) \[(?P<default>[^][]+)\]\.$", re.DOTALL)
_EXTRA: Final = re.compile(r"^(?P<words>.*?) *\[(?P<extra>(?:default|required|env var|x|\d)[^][]*)\]$", re.DOTALL)
_FIRST_WORDS: Final = """\
# Commands

Every command explains itself with `--help`; these pages say the same, and are made from it.

Results go to stdout, as words or with `--json` as one JSON value. Progress, warnings and errors go to stderr, so a
pipe gets nothing but results. `-q` prints nothing else, `-v` more.

"""


def command_pages() -> dict[str, str]:
    """Give the pages: file name -> Markdown."""
    context = click.Context(main, info_name="bftrain", **main.context_settings)
    pages = {"index.md": _FIRST_WORDS + "\n".join([*_overview(), "", *_exit_codes()])}
    for name in COMMANDS:
        command = main.get_command(context, name)
        if command is None:
            raise LookupError(f"no command {name}")
        pages[f"{name}.md"] = "\n".join(_page(command, click.Context(command, parent=context, info_name=name)))
    return pages


def _overview() -> Iterator[str]:
    for title, entries in SECTIONS.items():
        yield from (f"## {title}", "", "| command | what it does |", "|---|---|")
        yield from (f"| [`bftrain {name}`]({name}.md) | {_cell(entry.about)} |" for name, entry in entries.items())
        yield ""


def _exit_codes() -> Iterator[str]:
    yield from ("## Exit codes", "", "| code | when |", "|---|---|", "| 0 | All went well |")
    kinds = (
        errors.PartlyFailed,
        errors.UsageError,
        errors.BadInput,
        errors.NotAvailable,
        errors.Fault,
        errors.Interrupted,
    )
    for kind in sorted(kinds, key=lambda kind: kind.exit_code):
        first_words = re.split(r"[;\n]", kind.__doc__ or "")[0].rstrip(".")
        yield f"| {kind.exit_code} | {first_words} |"


def _page(command: click.Command, context: click.Context, level: int = 1) -> Iterator[str]:
    yield from (f"{'#' * level} {context.command_path}", "")
    yield from (_paragraphs(command.help), "")
    yield from ("```text", " ".join([context.command_path, *command.collect_usage_pieces(context)]), "```", "")
    if isinstance(command, DocumentedCommand):
        yield from ("For example:", "", "```sh", command.example, "```", "")
    if command.epilog:
        yield from (_paragraphs(command.epilog), "")
    if isinstance(command, DocumentedCommand) and command.takes_durations:
        yield from (f"`{DURATION}` is {FORMS}.", "")
    if isinstance(command, DocumentedCommand):
        for title, records in command.records_by_heading(context).items():
            yield from _table(f"{'#' * (level + 1)} {title}", records)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _page(inner, click.Context(inner, parent=context, info_name=name), level + 1)


def _table(title: str, records: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield from (title, "", "| option | what it does | default |", "|---|---|---|")
    for names, text in records:
        words, default = _default(text)
        yield f"| `{names}` | {_marked(_cell(words))} | {default} |"
    yield ""


def _default(words: str) -> tuple[str, str]:
    """Split an option's help into its description, its default and its range, which are in brackets at the end."""
    value = limits = ""
    if found := _EXTRA.match(words):
        words, limits = found["words"], found["extra"]
        if limits.startswith("default: "):
            value, _, limits = limits.removeprefix("default: ").partition("; ")
    if found := _DEFAULT.match(words):
        words, value = f"{found['words']}.", found["default"]
    return words, ", ".join(filter(None, (f"`{value}`" if value else "", limits)))


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", inspect.cleandoc(text or ""))))


def _paragraph(text: str) -> str:
    if not text.startswith("\b"):  # click's sign for lines that stay as they are
        return _marked(_cell(text))
    lines = text.removeprefix("\b").strip("\n")
    return f"```text\n{lines}\n```"


def _cell(text: str) -> str:
    return " ".join(text.split())


def _marked(text: str) -> str:
    """Give plain words as Markdown: options as code, pages as links to them, signs as signs."""
    text = re.sub(r"([*_<\[{#|])", r"\\\1", text)
    text = re.sub(r"(?<!\S)(--[a-z][a-z-]*)", r"`\1`", text)
    return re.sub(r"docs/([\w/-]+)\.md", r"[\1](../../\1.md)", text)
