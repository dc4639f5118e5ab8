"""Options of several commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import click

from bftrain.cli.command_help import rare
from bftrain.cli.value_completion import complete_parts

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

QUICK: Final = "BFTRAIN_QUICK"  # environment variable for --quick


class ClusterType(click.ParamType["Mapping[str, int]"]):
    """The number of nodes of each kind; the kind is "" in a cluster without kinds."""

    name = "KIND=NODES,.."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, int]:
        """Parse the text."""
        from bftrain.values.curve import CLUSTER_FORM, cluster_of

        try:
            return cluster_of(str(value))
        except ValueError as error:
            self.fail(f"{error}; {CLUSTER_FORM}", param, ctx)


cluster_option = click.option(
    "--cluster", type=ClusterType(), help="Instead of LOG: nodes that never leave, such as v100=36,k80=4 or 128."
)
tables_option = click.option(
    "--tables", type=click.Choice(("csv", "parquet")), default="csv", help="Format of the tables [csv]."
)
baseline_option = click.option(
    "--baseline",
    default="",
    metavar="SOLVER",
    help="Also replay with this solver, such as equal-share.",
    shell_complete=complete_parts("solver"),
)
quick_option = click.option(
    "--quick",
    is_flag=True,
    envvar=QUICK,
    help="Skip the sensitivity table, the advice and the bound of different tasks.",
)


def no_cache_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add the former option ``--no-cache`` to a command, with a hint at the environment variable."""
    return rare("no_cache", hint="BFTRAIN_NO_CACHE=1 in the environment")(
        click.option("--no-cache", is_flag=True)(function)
    )


def worker_options(function: Callable[P, R]) -> Callable[P, R]:
    """Add the options that choose workers: ``--jobs``, ``--dask`` and ``--dask-option``."""
    options = (
        click.option("--jobs", type=click.IntRange(min=1), help="Number of workers [one per processor; slurm: 8]."),
        click.option(
            "--dask", metavar="ADDRESS|slurm", default="", help="Use this Dask cluster, or start one in Slurm jobs."
        ),
        click.option(
            "--dask-option",
            "dask_options",
            metavar="NAME=VALUE",
            multiple=True,
            help="With slurm: an option of dask_jobqueue.SLURMCluster, such as queue=main.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function
