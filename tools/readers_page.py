"""Generate the second part of docs/reference/readers.md: findings, columns of each reader, public sets.

`make docs` appends it to the written part; ``python tools/readers_page.py`` prints it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from bftrain.registry import BUILT_IN
from bftrain_datasets.importing.findings import HAZARDS
from bftrain_datasets.job_tables.public_sets import PUBLIC_SETS

_ABOUT_FINDINGS: Final = """\
Each row is used or skipped for a reason: *rows read = used + skipped*, always. `--strict` rejects records with findings
in bold, with exit code 3.
"""
_ABOUT_COLUMNS: Final = """\
Case matters in keys, not in column names. Partitions and queues are for `--preemptible`, clusters for `--cluster`,
GPUs and cores for `--unit`.
"""
_ABOUT_SETS: Final = """\
These tables need no option; `--preset NAME` selects one by hand. Bold sets were tested with rows.
"""
_OPTION: Final = re.compile(r"(--[a-z-]+)")


def generated_part() -> str:
    """Return the generated part of the page as Markdown."""
    return "\n".join([*_findings(), *_formats(), *_public_sets()]) + "\n"


def reader_docs(name: str) -> str:
    """Return the docstring of a built-in reader, which contains the table of its columns."""
    return inspect.getdoc(import_module(BUILT_IN["reader"][name])) or ""


def columns_of(name: str) -> list[tuple[str, bool, str]]:
    """Return the columns of a built-in reader: names, whether they are required, and their meaning."""
    lines = [line for line in reader_docs(name).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [(names, required == "yes", meaning) for names, required, meaning in rows]


def _label(text: str, *, bold: bool) -> str:
    return f"**{text}**" if bold else text


def _findings() -> Iterator[str]:
    yield from ("## Findings", "", _ABOUT_FINDINGS)
    for title, aside in (("Skipped rows:", True), ("Assumptions:", False)):
        yield from (title, "")
        for name, hazard in HAZARDS.items():
            if hazard.aside is not aside:
                continue
            done = hazard.done.removeprefix("row skipped").removeprefix(": ")
            end = "" if hazard.says.endswith("?") or not done else "."
            treatment = f"{end} {done[0].upper()}{done[1:]}" if done else ""
            option = f" ({hazard.option})" if hazard.option and hazard.option not in hazard.says else ""
            words = _OPTION.sub(r"`\1`", f"{hazard.says}{treatment}{option}")
            yield f"- {_label(f'`{name}`', bold=hazard.doubt)}: {words}"
        yield ""


def _formats() -> Iterator[str]:
    yield from ("## Formats", "", _ABOUT_COLUMNS)
    for name in BUILT_IN["reader"]:
        yield from (f"### {name}", "", reader_docs(name).partition("\n|")[0].replace("``", "`").rstrip(), "")
        columns = columns_of(name)
        for names, required, meaning in columns:
            if required:
                yield f"- {names}: {meaning}".replace("``", "`")
        optional = "; ".join(names for names, required, _ in columns if not required)
        if optional:
            yield f"- optional: {optional}".replace("``", "`")
        yield ""


def _public_sets() -> Iterator[str]:
    yield from ("## Public sets", "", _ABOUT_SETS)
    for each in PUBLIC_SETS:
        yield f"- {_label(f'`{each.name}`', bold=each.tested)}: {each.about} ({each.source})"


if __name__ == "__main__":
    print(generated_part(), end="")  # noqa: T201 - this is what it is for
