"""Checks of what an event log is made from; each raises ``BadValue`` and names the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from bftrain.errors import BadValue
from bftrain.values import checks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray


def reject(name: str, problem: str, fix: str | None = None) -> NoReturn:
    """Raise ``BadValue`` for this field of an event log."""
    raise BadValue(problem, where=f"EventLog.{name}", fix=fix)


def is_node_name(name: str) -> bool:
    """Return whether a node may have this name: a printable text without space around it."""
    return bool(name) and name == name.strip() and name.isprintable()


def checked_names(given: Sequence[str], field: str = "node_names") -> tuple[str, ...]:
    """Return names that are texts, at least one of them, and each once."""
    names = () if isinstance(given, str) else tuple(given)
    if not names:
        reject(field, "must be a list of at least one name")
    for name in names:
        if not is_node_name(name):
            reject(field, f"must be printable texts without surrounding space, not {name!r}")
    twice = checks.repeated(names)
    if twice is not None:
        reject(field, f"names '{twice}' twice")
    return names


def checked_column(name: str, given: ArrayLike, kind: type[np.number[Any]]) -> NDArray[Any]:
    """Return a copy of the column in its type, if nothing is lost by that."""
    column = np.asarray(given)
    if column.ndim != 1:
        reject(name, f"must be one row of numbers, not {column.ndim} dimensions")
    allowed = "iuf" if kind is np.float64 else "iu"
    if column.size and column.dtype.kind not in allowed:
        reject(name, f"must hold {np.dtype(kind)} numbers, not {column.dtype}")
    copy = column.astype(kind)
    if "f" not in allowed and column.size and not np.array_equal(copy, column):
        reject(name, f"holds numbers too large for {np.dtype(kind)}")
    return copy


def chosen_places(nodes: slice | Sequence[int] | NDArray[np.integer[Any]] | None, node_count: int) -> NDArray[np.int64]:
    """Return the places of the nodes that were chosen, in the order in which they were given."""
    if nodes is None:
        return np.arange(node_count)
    if isinstance(nodes, slice):
        chosen = np.arange(node_count)[nodes]
    else:
        chosen = np.asarray(nodes)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            reject("select.nodes", "must be a slice or a list of whole numbers")
    if chosen.size == 0:
        reject("select.nodes", "chooses no node")
    if int(chosen.min()) < 0 or int(chosen.max()) >= node_count:
        reject("select.nodes", f"must lie between 0 and {node_count - 1}")
    if np.unique(chosen).size != chosen.size:
        reject("select.nodes", "chooses a node twice")
    return chosen.astype(np.int64)
