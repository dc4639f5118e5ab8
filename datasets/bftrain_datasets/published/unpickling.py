"""Reads pickles as data with the standard library's unpickler, which imports and calls no name in them.

Each name in a pickle becomes a separate class. Its objects only record their arguments and state, for a reader that
knows the form (``frame``). Names outside an allowlist are rejected. So are operations that tables do not need, and
dictionary keys other than text: hashing a deeply nested key would overflow the C stack.

pandas' own unpickler is no alternative: numpy, pandas and pyarrow trust the types, flags, positions and offsets in a
pickle. A file with only allowed names can make them read and write any memory. Tests contain such pickles.
"""

from __future__ import annotations

import gzip
import lzma
import pickle
import struct
import tarfile
import zlib
from collections.abc import Callable, Collection
from typing import IO, Any, ClassVar, Final, Self

from bftrain.errors import BadInput

REMEDY: Final = "only tables that pandas saved with to_pickle are read"
_FETCH: Final = "fetch the file again"
_LONGEST_NAME: Final = 1 << 10
_PACKED_WRONG: Final = (zlib.error, lzma.LZMAError, tarfile.TarError, gzip.BadGzipFile)
_DAMAGED: Final = (
    pickle.UnpicklingError, ValueError, TypeError, AttributeError, LookupError, OverflowError, struct.error,
)  # fmt: skip
# Python writes these old names into pickles of protocol 2
_OLD_MODULES: Final = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_OPERATIONS: Final = b"".join(
    (
        pickle.PROTO, pickle.FRAME, pickle.MARK, pickle.STOP, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE,
        pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT,
        pickle.SHORT_BINUNICODE, pickle.BINUNICODE, pickle.BINUNICODE8,
        pickle.SHORT_BINBYTES, pickle.BINBYTES, pickle.BINBYTES8, pickle.BYTEARRAY8,
        pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS,
        pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3,
        pickle.MEMOIZE, pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET,
        pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.NEWOBJ, pickle.BUILD,
    )
)  # fmt: skip


class NamedObject(type):
    """A name in the pickle, as a class: ``pair`` is its module and name."""

    pair: tuple[str, str]


class PickledCall(metaclass=NamedObject):
    """An object of the pickle: the result of calling a name with ``args``, with a ``state`` set afterwards."""

    __slots__ = ("args", "state")
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> Self:  # noqa: ANN401 - any data
        """Record a call."""
        made = super().__new__(cls)
        made.args, made.state = args, None
        return made

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401 - any data
        """Record the state."""
        if self.state is not None:
            raise pickle.UnpicklingError("two states")
        self.state = state


class _Unpickler(pickle._Unpickler):  # noqa: SLF001 - the one in C has no table of operations to restrict
    """The standard unpickler, restricted to the names and operations of tables."""

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: step
        for code, step in pickle._Unpickler.dispatch.items()  # noqa: SLF001 - the parent's table
        if code in _OPERATIONS
    }

    def __init__(self, file: IO[bytes], where: str, admitted: Collection[tuple[str, str]]) -> None:
        super().__init__(file)
        self._where = where
        self._admitted = admitted
        self._known: dict[tuple[str, str], NamedObject] = {}

    def find_class(self, module: str, name: str) -> NamedObject:
        """Return the class that stands for an admitted name."""
        pair = _OLD_MODULES.get(module, module), name
        if pair not in self._admitted:
            asked = ".".join(pair)[:_LONGEST_NAME]
            shown = asked if asked.isprintable() else ascii(asked)
            raise BadInput(f"the pickle uses {shown}, which tables do not need", where=self._where, fix=REMEDY)
        if pair not in self._known:
            self._known[pair] = NamedObject("PickledCall", (PickledCall,), {"__slots__": (), "pair": pair})
        return self._known[pair]

    def _set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str or type(target) is not dict:
                raise pickle.UnpicklingError("a key that is not text")
            target[key] = value

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set_items([key, value])

    def load_setitems(self) -> None:
        self._set_items(self.pop_mark())

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems


def read_pickle(file: IO[bytes], where: str, admitted: Collection[tuple[str, str]]) -> Any:  # noqa: ANN401 - any data
    """Return the content of a pickle: plain values, and a ``PickledCall`` per object; raise ``BadInput`` if impossible.

    ``admitted`` are the accepted pairs of module and name. The stream is read once, up to the last byte of the pickle.
    """
    try:
        return _Unpickler(file, where, admitted).load()
    # The stream may be part of an archive
    except _PACKED_WRONG as error:
        raise BadInput(f"cannot be unpacked: {error}", where=where, fix=_FETCH) from error
    except EOFError as error:
        raise BadInput("the pickle is truncated", where=where, fix=_FETCH) from error
    except MemoryError as error:
        raise BadInput("the pickle needs more memory than available", where=where) from error
    except _DAMAGED as error:
        raise BadInput("a damaged pickle, or a pickle without a table", where=where, fix=REMEDY) from error
