"""``--cluster``: a machine whose nodes never leave, as ``v100=36,p100=36,k80=36``, or ``128`` where all are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClusterType(click.ParamType["Mapping[str, int]"]):
    """How many nodes there are of each kind; the kind without a name is that of nodes that are all alike."""

    name = "KIND=NODES,.."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, int]:
        """Read the text."""
        from bftrain.values.kinds import CLUSTER_FORM, cluster_of

        try:
            return cluster_of(str(value))
        except ValueError as error:
            self.fail(f"{error}; {CLUSTER_FORM}", param, ctx)
