"""Advice: what would help most."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any

from bftrain import words
from bftrain_replay.drawing.page import Html
from bftrain_replay.reporting.material import Material
from bftrain_replay.reporting.waterfall import hints


def advice(material: Material) -> Html:
    """Say what would help most, the most first."""
    idle_h = float(material.told["idle_node_h"])
    items = "".join(
        f"<li><strong>{_with_options(cause.help, material.told['settings'])}</strong> {escape(cause.name)}: "
        f"{words.count(hours)}&nbsp;node-hours, {words.percent(hours / idle_h)} of the idle node-time.</li>".replace(
            " %", "&nbsp;%"
        )
        for cause, hours in hints(material)
    )
    if not items:
        return Html("<p>Hardly anything: nearly all idle node-time became work that counts.</p>")
    return Html(
        f'<ol class="advice">{items}</ol><p class="soft">These are the largest steps above, with what usually makes '
        "them smaller. A replay with that setting shows what it brings; steps depend on each other.</p>"
    )


def _with_options(text: str, settings: Mapping[str, Any]) -> str:
    """Mark options in it as such, and say what they were."""

    def marked(found: re.Match[str]) -> str:
        name = found[0].removeprefix("--").replace("-", "_")
        value = settings.get(name, settings.get(f"{name}_s"))
        unit = " s" if f"{name}_s" in settings and not isinstance(value, str) else ""
        now = "" if value is None else f" (now {value:g}{unit})" if not isinstance(value, str) else f" (now {value})"
        return f"<code>{found[0]}</code>{escape(now)}"

    return re.sub(r"--[a-z-]+[a-z]", marked, escape(text))
