"""Speeds of pairs of tasks that share nodes, by their models."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from bftrain.values.sharing import PairSpeeds
from bftrain_datasets.workloads.speed_table import load_pair_speeds


def model_of(name: str) -> str:
    """Return the model of a task named MODEL-NUMBER, the naming of imported and generated tasks."""
    model, _, number = name.rpartition("-")
    return model if number.isdigit() else name


class PairTable:
    """The pairs of a throughput table; empty without a file."""

    def __init__(self, file: str) -> None:
        self._pairs = load_pair_speeds(Path(file)) if file else ()
        self._of = {(*pair.models, pair.nodes): pair for pair in self._pairs}
        self._among: tuple[frozenset[tuple[str, int]], tuple[PairSpeeds, ...]] = frozenset(), ()  # the last answer

    def between(
        self, names: Sequence[str], nodes: Sequence[int], places: Sequence[int]
    ) -> tuple[list[str], tuple[PairSpeeds, ...]]:
        """Return a model for each of these tasks, and the speeds of pairs of models as policies know them."""
        del places
        models = [model_of(name) for name in names]
        return models, self.among(set(zip(models, nodes, strict=True)))

    def among(self, models: AbstractSet[tuple[str, int]]) -> tuple[PairSpeeds, ...]:
        """Return the pairs with both models present, in this gang."""
        if models != self._among[0]:
            found = (pair for pair in self._pairs if all((model, pair.nodes) in models for model in pair.models))
            self._among = frozenset(models), tuple(found)
        return self._among[1]

    def speeds(self, one: str, other: str, nodes: int, kind: str) -> tuple[float, float]:
        """Return both speeds on a kind; 0 if they cannot share it."""
        pair = self._of.get((one, other, nodes))
        if pair is not None:
            return pair.speeds.get(kind, (0.0, 0.0))
        pair = self._of.get((other, one, nodes))
        return (0.0, 0.0) if pair is None else pair.speeds.get(kind, (0.0, 0.0))[::-1]
