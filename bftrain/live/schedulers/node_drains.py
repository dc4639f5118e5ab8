"""Nodes that the administrators of a scheduler empty by its own commands, such as for maintenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bftrain.live.schedulers.pilot_backend import PilotBackend, Run
from bftrain.live.schedulers.port import Post, Remark
from bftrain.node_units import node_of
from bftrain.nodesets import fold


class NodeDrains:
    """The drained nodes among those that have or had pilots of ours, each with the reason."""

    def __init__(self) -> None:
        self.nodes: Mapping[str, str] = {}

    async def refresh(self, batch: PilotBackend, run: Run, held: Iterable[str], post: Post) -> None:
        """Query the nodes ``held``, and the drained ones until they are in service again; post remarks."""
        ask = getattr(batch, "draining", None)  # of schedulers that tell
        if ask is None or not (asked := {*map(node_of, held), *self.nodes}):
            return
        before, self.nodes = self.nodes, await ask(run, sorted(asked))
        reasons: dict[str, list[str]] = {}
        for node, why in self.nodes.items():
            if node not in before:
                reasons.setdefault(why, []).append(node)
        for why, drained in reasons.items():
            post(Remark(text=f"{batch.name} drains {fold(drained)} ({why}): tasks leave, and it is given back"))

    def among(self, names: Iterable[str]) -> frozenset[str]:
        """Return the drained nodes, and those of ``names`` that are GPUs of such nodes."""
        gpus = (name for name in names if node_of(name) in self.nodes) if self.nodes else ()
        return frozenset(self.nodes).union(gpus)
