"""Node sets of texts that batches of jobs share, looked up once instead of once a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bftrain_datasets.importing.machine_nodes import HeldNodes

SIZE, UNKNOWN, REPEATED, NUMBER = range(4)


def facts_of(held: HeldNodes) -> tuple[int, int, int, int]:
    """Return what jobs need of a node set, in the order of the rows of ``KnownTexts.facts``."""
    return held.size, held.unknown, held.repeated, held.number


class KnownTexts:
    """Node sets by the index of their text: ``sets``, ``None`` if unknown, and ``facts``, a column for each."""

    def __init__(self) -> None:
        self._texts: Sequence[str] = ()
        self.sets: NDArray[np.object_] = np.empty(0, dtype=np.object_)
        self.facts: NDArray[np.int64] = np.empty((4, 0), dtype=np.int64)

    def use(self, texts: Sequence[str]) -> None:
        """Forget all, unless these are the texts of the last batch, with further ones at the end."""
        if texts is not self._texts:
            self._texts, self.sets, self.facts = texts, self.sets[:0], self.facts[:, :0]
        missing = len(texts) + 1 - self.sets.size  # the last is for jobs without a text
        if missing > 0:
            more = max(missing, self.sets.size)
            self.sets = np.append(self.sets, np.full(more, None, dtype=np.object_))
            self.facts = np.append(self.facts, np.zeros((4, more), dtype=np.int64), axis=1)

    def keep(self, index: int, held: HeldNodes) -> None:
        """Keep the node set of a text."""
        self.sets[index], self.facts[:, index] = held, facts_of(held)

    def refresh(self, index: int, held: HeldNodes) -> None:
        """Take over what changed of a node set, if it is kept."""
        if self.sets[index] is held:
            self.keep(index, held)
