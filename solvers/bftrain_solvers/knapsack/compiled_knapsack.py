"""The knapsack in compiled form: the same answers as :mod:`bftrain_solvers.knapsack.best_sizes`, much faster.

Its library is compiled at build or install time if a C compiler is available. Without the library, or with
``BFTRAIN_NO_COMPILED=1`` in the environment, numpy does all the work.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.knapsack.library_file import library_file, other_libraries

NO_COMPILED: Final = "BFTRAIN_NO_COMPILED"
ROOM: Final = 2**22  # 32 MiB of addresses; memory is only used as needed


class CompiledKnapsack:
    """Calls the library. It keeps the interpreter's lock during calls, so threads can share one object.

    ``room`` is the capacity of its memory in numbers; larger problems are declined.
    """

    def __init__(self, library: ctypes.PyDLL, room: int = ROOM) -> None:
        number, address = ctypes.c_int64, ctypes.c_void_p
        self._solve = library.bftrain_best_sizes
        self._solve.argtypes = (address, number, number, address, address, number, address, address, number, address)
        self._solve.restype = ctypes.c_int
        self._room = np.empty(room, dtype=np.int64)
        self._last_price = np.zeros(4, dtype=np.int64)
        self._kept = self._room.ctypes.data, room, self._last_price.ctypes.data

    def best_sizes(self, values: Floats, present: Sequence[int], pool: int) -> list[int] | None:
        """Return the best sizes, or ``None`` if the problem is too large or its numbers are extreme."""
        rows, width = values.shape
        table = np.ascontiguousarray(values, dtype=np.float64)
        held, sizes = array("q", present), array("q", bytes(8 * rows))
        if len(held) != rows:
            raise ValueError(f"{rows} rows, but {len(held)} present sizes")
        declined = self._solve(
            table.__array_interface__["data"][0],
            rows,
            width,
            held.buffer_info()[0],
            None,
            min(pool, rows * width),
            sizes.buffer_info()[0],
            *self._kept,
        )
        return None if declined else sizes.tolist()


@cache
def compiled_library() -> ctypes.PyDLL | None:
    """Return the library, or ``None`` if no library matches these sources and this machine."""
    if os.environ.get(NO_COMPILED, "0") not in ("", "0"):
        return None
    try:
        return ctypes.PyDLL(str(library_file()))
    except OSError:
        return None


def compiled_function(name: str) -> Callable[..., int] | None:
    """Return a function of the library; ``None`` without it."""
    library = compiled_library()
    return None if library is None else library[name]


def call_compiled(name: str, numbers: Sequence[int], arrays: Sequence[Floats | Integers]) -> None:
    """Call a function of the library with whole numbers and then arrays of 8-byte numbers, the last ones its results.

    Raise if the library is missing or the function declines.
    """
    library = compiled_library()
    if library is None:
        reason, fix = why_numpy()
        raise BadInput(f"needs compiled code: {reason}", where="like", fix=f"omit it, or {fix}")
    # Results have this layout; copied arrays live as long as this list
    plain = [np.ascontiguousarray(array) for array in arrays]
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in plain]
    if library[name](*map(ctypes.c_int64, numbers), *addresses):
        fix = "check speeds, weights and work, or omit it"
        raise BadInput("the numbers differ by too many orders of magnitude to be computed", where="like", fix=fix)


def fields_of(*groups: tuple[type, str]) -> list[tuple[str, Any]]:
    """Return the fields of a struct in order, from types with the names of their fields."""
    return [(name, kind) for kind, names in groups for name in names.split()]


class CompiledStruct(ctypes.Structure):
    """A struct of numbers and arrays, which compiled code reads and changes in place. Subclasses set ``_fields_``."""

    def __init__(self, **numbers: float) -> None:
        super().__init__(**numbers)
        self.arrays = dict[str, NDArray[Any]]()  # keeps their memory

    def bind(self, **arrays: NDArray[Any]) -> None:
        """Set arrays by field."""
        self.arrays |= arrays
        for name, values in arrays.items():
            assert values.flags.c_contiguous  # noqa: S101 - compiled code has no strides
            setattr(self, name, values.ctypes.data)


@cache
def compiled_knapsack() -> CompiledKnapsack | None:
    """Return the compiled knapsack, or ``None`` if the library is missing."""
    library = compiled_library()
    return None if library is None else CompiledKnapsack(library)


def why_numpy() -> tuple[str, str]:
    """Return the reason for a missing compiled knapsack, and a fix."""
    if os.environ.get(NO_COMPILED, "0") not in ("", "0"):
        return f"{NO_COMPILED} is set", f"unset {NO_COMPILED}"
    if library_file().exists():
        return "its compiled code cannot be loaded here", "install bftrain from its source again, on this machine"
    if other_libraries():
        return "its C code is newer than the compiled library", "run pip install -e . in the checkout again"
    again = "install a C compiler (cc) and then bftrain from its source again; pip install -v shows the error"
    return "it has no compiled code", again
