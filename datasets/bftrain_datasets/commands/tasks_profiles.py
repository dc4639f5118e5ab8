"""``bftrain generate profiles``: list measured models of the catalogue or of files, with their speeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from bftrain.cli.command_help import DocumentedCommand, heading, rare
from bftrain.cli.output import Output, prints_results, table
from bftrain_datasets.commands.logfiles import FILE

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bftrain.taskfiles.records import Profile

P = ParamSpec("P")
R = TypeVar("R")


class NoiseScales(click.ParamType[Mapping[str, float]]):
    """A gradient noise scale for all models, or for some by name; an empty name means all other models."""

    name = "n|model=n,.."
    NONE: Final[Mapping[str, float]] = MappingProxyType({})

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, float]:
        """Parse ``2000``, or ``bert=150,imagenet=8000``."""
        if not isinstance(value, str):
            return self.NONE
        found: dict[str, float] = {}
        for part in value.split(","):
            model, _, number = part.rpartition("=")
            try:
                found[model.strip()] = float(number)
            except ValueError:
                found[model.strip()] = -1.0
            if not 0.0 <= found[model.strip()] < float("inf"):
                self.fail(f"{part!r} is no noise scale; write 2000, or bert=150,imagenet=8000", param, ctx)
        return found


def reading_options(function: Callable[P, R]) -> Callable[P, R]:
    """Add the options for reading profile files to a command."""
    options = (
        click.option("--node-kind", default=None, help="For a table of Gavel: speeds on this node kind."),
        click.option(
            "--noise-scale",
            type=NoiseScales(),
            default=NoiseScales.NONE,
            help="For AdaptDL sets: gradient noise scale in samples, for tasks with batches [none].",
        ),
        click.option(
            "--by-hosts", is_flag=True, help="For a table of Gavel: keep the speeds of GPUs on several hosts."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command(
    cls=DocumentedCommand,
    example="bftrain generate profiles\nbftrain generate profiles bert_scalability.csv --noise-scale 150 -o bert.toml",
    epilog="FILE is a profile file (.toml) such as bftrain train --save-profile writes, a throughput table of Gavel "
    "(.json), or a *_scalability.csv of AdaptDL. Without FILE: the seven bundled models.",
)
@rare("by_hosts", "node_kind", "noise_scale")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=FILE)
@heading("How files are read")
@reading_options
@heading("Result")
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write them as a profile file (.toml).",
)
@prints_results
def command(
    files: tuple[Path, ...],
    path: Path | None,
    out: Output,
    **given: Any,  # noqa: ANN401 - CatalogueOptions
) -> None:
    """List measured models: speeds by size, scaling, and rescaling costs."""
    from msgspec import structs

    from bftrain.taskfiles.profile_files import save_profiles
    from bftrain.values import wire
    from bftrain_datasets.workloads.catalogue import CatalogueOptions, catalogue

    options = CatalogueOptions(**given)
    known = catalogue(files, options)
    if path is not None:
        save_profiles(known.values(), path)
    records = [{**structs.asdict(each), "curve": structs.asdict(each.curve)} for each in known.values()]
    for record, each in zip(records, known.values(), strict=True):
        record["batch"] = None if each.batch is None else structs.asdict(each.batch)
        record["spread"] = wire.plain(each.spread)
    out.result(records, lambda: _in_words(known, path))


def _in_words(known: Mapping[str, Profile], path: Path | None) -> RenderableType:
    from bftrain import text_formats

    rows = []
    with_batches = any(each.batch is not None for each in known.values())
    for each in known.values():
        nodes, rate = each.curve.nodes, each.curve.rate
        first = next((place for place, speed in enumerate(rate) if speed), 0)
        share = rate[-1] / rate[first] * nodes[first] / nodes[-1] if rate[first] else None
        costs = (each.grow_cost_s, each.shrink_cost_s, each.start_cost_s)
        rows.append(
            (
                each.name,
                f"{nodes[0]}:{nodes[-1]}" if len(nodes) > 1 else f"{nodes[0]}",
                text_formats.large(rate[first]),
                text_formats.large(rate[-1]),
                text_formats.percent(share),
                *("-" if cost is None else f"{cost:.3g}" for cost in costs),
                *(_batch(each) if with_batches else ()),
                each.source,
            )
        )
    of_batches = ("batches", "a node", "noise", "fixed share") if with_batches else ()
    costs_s = ("grow, s", "shrink, s", "start, s")
    columns = ("profile", "sizes", "slowest", "fastest", "scaling", *costs_s, *of_batches, "source")
    title = f"{path}: {len(rows):,} profiles" if path is not None else ""
    return table(title, columns, rows, left=(0, 1, len(columns) - 1))


def _batch(profile: Profile) -> tuple[str, ...]:
    batch = profile.batch
    if batch is None:
        return ("-",) * 4
    largest = batch.measured if batch.largest is None else batch.largest
    shown = f"{batch.measured:,}", f"{batch.noise_scale:g}", f"{batch.fixed_share:.2f}"
    return f"{batch.initial:,}:{largest:,}", *shown
