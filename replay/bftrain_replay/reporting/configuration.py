"""The section on configuration: inputs, versions and settings of a run, with defaults listed separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bftrain import text_formats
from bftrain.values import wire
from bftrain.version import CITATION
from bftrain_replay.drawing.html_page import HtmlTable
from bftrain_replay.run.run import Run


def configuration(run: Run, inputs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the parts of configuration.html: inputs and chosen settings, default settings, and versions."""
    settings: Mapping[str, Any] = run.summary["settings"]
    defaults = wire.plain(run.kind.settings())
    chosen = {name: value for name, value in settings.items() if name not in defaults or value != defaults[name]}
    usual = [(name, text_formats.setting(value)) for name, value in settings.items() if name not in chosen]
    versions = [(name, str(value)) for name, value in run.summary["versions"].items()]
    rows = [*inputs, *((name, text_formats.setting(value)) for name, value in chosen.items())]
    return {
        "chosen": _table("Configuration", ("what", "value"), rows),
        "default": "" if chosen else "All settings are as by default.",
        "usual": _table("Settings as by default", ("setting", "value"), usual, f"{len(usual)} default settings"),
        "versions": _table("Versions", ("what", "version"), versions, "Versions"),
        "cite": CITATION,
    }


def input_text(file: Mapping[str, str]) -> str:
    """Return an input with its checksum."""
    return f"{file['name'] or 'made in memory'} (SHA-256 {file['sha256']})"


def _table(label: str, headings: Sequence[str], rows: Sequence[tuple[str, str]], folded: str = "") -> HtmlTable:
    return HtmlTable(label=label, headings=headings, rows=rows, css="plain", folded=folded)
