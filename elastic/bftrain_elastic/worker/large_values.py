"""Large values: those of a state that hold so much that a commit cannot compare them between workers.

Each worker only looks which of its own were changed since its last commit: another tensor, or one that was written to.
If that is not the same on all workers, those of rank 0 are sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bftrain_elastic.worker.state_tree import NamedValues, StateTree, fold, put_back

_DIGEST_BYTES: Final = 7  # so that the number and its negative fit into 64 bits


class LargeValues:
    """Remembers how one worker's large values looked at its last commit."""

    def __init__(self) -> None:
        self._marks: dict[str, object] = {}
        self._values: Mapping[str, Any] = {}
        self.changed: tuple[str, ...] = ()

    def look(self, values: Mapping[str, Any]) -> None:
        """Find out which values were changed since the last look."""
        marks = {name: _mark(value) for name, value in values.items()}
        self.changed = tuple(name for name in sorted(marks) if marks[name] != self._marks.get(name))
        self._marks, self._values = marks, values  # the values too: their memory is not given to others meanwhile

    @property
    def digest(self) -> int:
        """Return a number for the names of the values that were changed."""
        text = json.dumps(self.changed).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest(), "little")

    @property
    def there(self) -> bool:
        """Whether there are any."""
        return bool(self._marks)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all."""
        return tuple(self._marks)

    def to_send(self, *, everything: bool) -> StateTree:
        """Return the values that rank 0 sends: all, or those that were changed."""
        return _tree_of(self._values, self._values if everything or not self.changed else self.changed)


def taken(tree: StateTree, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of rank 0; tensors that a worker has already are written to, as they may be in use."""
    names = [name for name, _ in json.loads(tree.plain)[1]]
    mine = _tree_of(present, names) if all(name in present for name in names) else None
    return dict(((put_back(tree, mine) if mine else None) or tree).unfolded())


def _tree_of(values: Mapping[str, Any], names: Iterable[str]) -> StateTree:
    found = NamedValues()
    for name in sorted(names):
        found.add(name, values[name])
    return found.tree()


def _mark(value: object) -> object:
    """Return what tells a value from a later one without looking at its numbers."""
    tree = fold(value)
    return tree.plain, [(one.data_ptr(), _version(one), str(one.dtype), tuple(one.shape)) for one in tree.tensors]


def _version(tensor: Any) -> int:  # noqa: ANN401 - torch.Tensor
    try:
        return int(tensor._version)  # noqa: SLF001 - there is no public way
    except RuntimeError:  # tensors of an inference mode count nothing
        return 0
