"""The section on configuration: inputs, versions and settings of a replay, with defaults listed separately."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bftrain import text_formats
from bftrain.values import wire
from bftrain.version import CITATION
from bftrain_replay.drawing.html_page import HtmlTable, HtmlText
from bftrain_replay.simulation.replay_settings import ReplaySettings


def configuration(summary: Mapping[str, Any]) -> Iterator[HtmlTable | HtmlText]:
    """Yield the tables: inputs, chosen settings, versions, and default settings."""
    inputs = [
        (name, f"{one['name'] or 'made in memory'} (SHA-256 {one['sha256']})")
        for name, one in summary["inputs"].items()
    ]
    baseline = [("baseline", summary["baseline"]["solver"])] if summary["baseline"] else []
    return tables([*inputs, *baseline], summary["settings"], wire.plain(ReplaySettings()), summary["versions"])


def tables(
    inputs: Sequence[tuple[str, str]],
    settings: Mapping[str, Any],
    defaults: Mapping[str, Any],
    versions: Mapping[str, object],
) -> Iterator[HtmlTable | HtmlText]:
    """Yield the tables for any settings."""
    chosen = {name: value for name, value in settings.items() if name not in defaults or value != defaults[name]}
    rows = [*inputs, *((name, text_formats.setting(value)) for name, value in chosen.items())]
    yield HtmlTable(label="Configuration", headings=("what", "value"), rows=rows, css="plain")
    if not chosen:
        yield HtmlText('<p class="soft">All settings are as by default.</p>')
    yield HtmlTable(
        label="Settings as by default",
        headings=("setting", "value"),
        rows=[(name, text_formats.setting(value)) for name, value in settings.items() if name not in chosen],
        css="plain",
        folded=f"{len(settings) - len(chosen)} settings that are as by default",
    )
    yield HtmlTable(
        label="Versions",
        headings=("what", "version"),
        rows=[(name, str(value)) for name, value in versions.items()],
        css="plain",
        folded="Versions",
    )
    yield HtmlText(f'<p class="soft">To cite: {CITATION}.</p>')
