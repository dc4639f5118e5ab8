"""Generate the glossary page of the site from the entries of `explain`; ``python tools/glossary_page.py`` prints it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from bftrain_replay.run.summary_figures import (
    FIGURES,
    GLOSSARY,
    GLOSSARY_PAGES,
    PARTS,
    GlossaryEntry,
    SummaryFigure,
    entry_of,
)

_FIRST_WORDS = """\
# Glossary

The meaning of every figure. `bftrain explain FIGURE` prints the same, and with `--of DIR` the value in that replay. On
pages, point at a figure. For terms such as *pilot* or *rescale* see
[the architecture](../explanation/architecture.md#words).
"""


def glossary_page() -> str:
    """Return the page as Markdown."""
    return "\n".join(
        [_FIRST_WORDS, *(line for topic, page in GLOSSARY_PAGES.items() for line in _section(topic, page))]
    )


def _section(topic: str, page: str) -> Iterator[str]:
    yield from (f"## {topic}", "", "| in files | on pages | meaning |", "|---|---|---|")
    yield from (_row(entry) for entry in GLOSSARY if entry.topic == topic)
    page = page.removeprefix("docs/")
    name = page.partition(".")[0].rpartition("/")[2]
    yield from ("", f"See [{name}]({os.path.relpath(page, 'reference')}).", "")


def _row(entry: GlossaryEntry) -> str:
    labels = dict.fromkeys(_label(figure) for figure in FIGURES if entry_of(figure.name) is entry)
    formula = f" `{entry.formula}`" if entry.formula else ""
    return f"| `{entry.key}` | {', '.join([*labels, *entry.also])} | {entry.sentence}{formula} |"


def _label(figure: SummaryFigure) -> str:
    """Return the label; a part of a spread, such as the mean, has the label of the whole."""
    words, _, part = figure.label.rpartition(", ")
    return words if part in PARTS.values() else figure.label


if __name__ == "__main__":
    print(glossary_page(), end="")  # noqa: T201 - this is what it is for
