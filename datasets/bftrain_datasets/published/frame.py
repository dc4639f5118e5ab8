"""Tables saved by pandas with ``to_pickle``, read without pandas and without executing code.

The standard library's unpickler reads a pickle as data; it imports and calls no name in it. Each name becomes a
separate class, whose objects only record their arguments and state. Names outside an allowlist are rejected. So are
operations that tables do not need, and dictionary keys other than text: hashing a deeply nested key would overflow the
C stack. Then shapes, types and lengths are checked before any array is created.

pandas' own unpickler is no alternative: numpy, pandas and pyarrow trust the types, flags, positions and offsets in a
pickle. A file with only allowed names can make them read and write any memory. Tests contain such pickles.

Supported are the layouts of pandas 0.25 to 3 with numpy 1 and 2, and pickle protocols 2 to 5.
"""

from __future__ import annotations

import gzip
import lzma
import math
import pickle
import re
import struct
import tarfile
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import IO, Any, ClassVar, Final, Self, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput, Fault
from bftrain_datasets.log.log_columns import epochs

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
                raise pickle.UnpicklingError("a non-text key")
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
        raise BadInput("a damaged pickle, or one with no table", where=where, fix=REMEDY) from error


Labels: TypeAlias = "NDArray[Any] | range"

_NUMPY: Final = ("numpy.core", "numpy._core")  # names before and since numpy 2
_RECONSTRUCT: Final = frozenset((f"{home}.multiarray", "_reconstruct") for home in _NUMPY)
_FROM_BUFFER: Final = frozenset((f"{home}.numeric", "_frombuffer") for home in _NUMPY)
_SCALAR: Final = frozenset((f"{home}.multiarray", "scalar") for home in _NUMPY)
_DTYPE: Final = ("numpy", "dtype")
_ENCODE: Final = ("_codecs", "encode")  # bytes in protocol 2
_BYTE_ARRAY: Final = ("builtins", "bytearray")  # a bytearray in protocols before 5
_BYTES: Final = ("builtins", "bytes")  # empty bytes in protocol 2
_SLICE: Final = ("builtins", "slice")
_FRAME: Final = frozenset({("pandas.core.frame", "DataFrame"), ("pandas", "DataFrame")})
_MANAGER: Final = ("pandas.core.internals.managers", "BlockManager")
_BLOCK: Final = ("pandas._libs.internals", "_unpickle_block")
_BACKED: Final = ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked")
_TIME_ARRAY: Final = frozenset({("pandas.core.arrays.datetimes", "DatetimeArray"), ("pandas.arrays", "DatetimeArray")})
_NEW_INDEX: Final = frozenset(
    {("pandas.core.indexes.base", "_new_Index"), ("pandas.core.indexes.datetimes", "_new_DatetimeIndex")}
)
_RANGE_INDEX: Final = frozenset({("pandas.core.indexes.range", "RangeIndex"), ("pandas", "RangeIndex")})
_ARROW_TEXTS: Final = ("pandas.arrays", "ArrowStringArray")  # written by pandas 3 with pyarrow
_ARROW_ARRAY: Final = ("pyarrow.lib", "_restore_array")
_ARROW_BUFFER: Final = ("pyarrow.lib", "py_buffer")
_ARROW_TYPE: Final = ("pyarrow.lib", "type_for_alias")
_ARROW_OFFSETS: Final = {"large_string": "<i8", "string": "<i4"}
ADMITTED: Final = frozenset(
    {
        *_RECONSTRUCT, *_FROM_BUFFER, *_SCALAR, *_FRAME, *_TIME_ARRAY, *_NEW_INDEX, *_RANGE_INDEX,
        _DTYPE, _ENCODE, _BYTES, _BYTE_ARRAY, _SLICE, _MANAGER, _BLOCK, _BACKED,
        _ARROW_TEXTS, _ARROW_ARRAY, _ARROW_BUFFER, _ARROW_TYPE,
        # Accepted by name only, or ignored
        ("numpy", "ndarray"),
        ("pandas.core.indexes.base", "Index"), ("pandas", "Index"),
        ("pandas.core.indexes.numeric", "Int64Index"), ("pandas.core.indexes.numeric", "UInt64Index"),
        ("pandas.core.indexes.numeric", "Float64Index"),
        ("pandas.core.indexes.datetimes", "DatetimeIndex"), ("pandas", "DatetimeIndex"),
        ("pandas.core.arrays.string_", "StringArray"), ("pandas.arrays", "StringArray"),
        ("pandas.core.arrays.string_", "StringDtype"), ("pandas", "StringDtype"),
        # Time zones and frequencies are ignored: the times themselves are always UTC
        ("pandas.core.dtypes.dtypes", "DatetimeTZDtype"), ("pandas", "DatetimeTZDtype"),
        ("datetime", "timezone"), ("datetime", "timedelta"), ("pytz", "_UTC"),
        ("pandas._libs.tslibs.offsets", "Second"), ("pandas._libs.tslibs.offsets", "Minute"),
        ("pandas._libs.tslibs.offsets", "Hour"), ("pandas._libs.tslibs.offsets", "Day"),
    }
)  # fmt: skip
_PLAIN_TYPE: Final = re.compile(r"b1|[iuf][1248]")
_UNITS: Final = {b"s": "s", b"ms": "ms", b"us": "us", b"ns": "ns"}
TIME_REMEDY: Final = "save a table with times, or seconds since 1970-01-01 UTC"
_MOST_DIMENSIONS: Final = 2
_MOST_LABELS: Final = 1 << 48  # largest bound of a range of labels; much larger ranges have no ``len``


@dataclass(frozen=True, slots=True)
class FrameBlock:
    """Columns with the same type: their ``places`` (indices) in the table, and their values, one row per column."""

    places: NDArray[np.int64]
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class SavedFrame:
    """A table: column names, row labels, and the blocks of values."""

    columns: tuple[str, ...]
    index: Labels
    blocks: tuple[FrameBlock, ...]
    where: str

    def column(self, name: str) -> NDArray[Any]:
        """Return the values of a column."""
        place = self.columns.index(name)
        for block in self.blocks:
            found = np.flatnonzero(block.places == place)
            if found.size:
                column: NDArray[Any] = block.values[int(found[0])]
                return column
        raise Fault(f"no block has the column '{name}'", where=self.where)


def load_frame(file: IO[bytes], where: str) -> SavedFrame:
    """Return the table in a stream, keeping only one copy of its values; raise ``BadInput`` for other content."""
    return _Reading(where).frame(read_pickle(file, where, ADMITTED))


def seconds_of(times: Labels, where: str) -> NDArray[np.float64]:
    """Return times in seconds UTC; raise ``BadInput`` at the first row without a time."""
    values = np.asarray(times)
    if values.dtype.kind not in "Miuf":
        raise BadInput("the values are not times", where=where, fix=TIME_REMEDY)
    is_missing = np.isnat(values) if values.dtype.kind == "M" else ~np.isfinite(values)
    if is_missing.any():
        raise BadInput(f"row {int(is_missing.argmax()) + 1} has no time", where=where, fix=TIME_REMEDY)
    return epochs(values) if values.dtype.kind == "M" else values.astype(np.float64)


class _Reading:
    """Interprets a parsed pickle. Every method checks the form of its argument."""

    def __init__(self, where: str) -> None:
        self._where = where

    def _wrong(self, what: str) -> BadInput:
        return BadInput(what, where=self._where, fix=REMEDY)

    def frame(self, tree: object) -> SavedFrame:
        if not (_is(tree, *_FRAME) and isinstance(tree.state, dict)):
            raise self._wrong("the pickle contains no pandas DataFrame")
        manager = tree.state.get("_mgr", tree.state.get("_data"))
        if not _is(manager, _MANAGER):
            raise self._wrong("the DataFrame has no values")
        axes, pairs = self._parts(manager)
        names, index = self.labels(axes[0]), self.labels(axes[1])
        blocks = tuple(self._block(values, places, len(names), len(index)) for values, places in pairs)
        if sum(block.places.size for block in blocks) != len(names):  # checked before a range becomes a list of names
            raise self._wrong("the DataFrame does not have each column once")
        columns = tuple(self._text(label) for label in np.asarray(names).tolist())
        if len(set(columns)) != len(columns):
            raise self._wrong("two columns of the DataFrame have the same name")
        filled = np.sort(np.concatenate([block.places for block in blocks])) if blocks else np.arange(0)
        if not np.array_equal(filled, np.arange(len(columns))):
            raise self._wrong("the DataFrame does not have each column once")
        return SavedFrame(columns, index, blocks, self._where)

    def _parts(self, manager: PickledCall) -> tuple[Sequence[Any], list[tuple[Any, Any]]]:
        """Return the two axes, and the values and indices of each block, for both known layouts."""
        match manager:
            case PickledCall(args=(tuple() as blocks, [columns, index])):
                made = [block for block in blocks if _is(block, _BLOCK) and len(block.args) > 1]
                if len(made) == len(blocks):
                    return (columns, index), [(block.args[0], block.args[1]) for block in made]
            case PickledCall(state=(_, _, _, {"0.14.1": {"axes": [columns, index], "blocks": list() as blocks}})):
                known = [block for block in blocks if isinstance(block, dict) and {"values", "mgr_locs"} <= set(block)]
                if len(known) == len(blocks):
                    return (columns, index), [(block["values"], block["mgr_locs"]) for block in known]
        raise self._wrong("the DataFrame has an unknown layout")

    def _block(self, given: object, places: object, columns: int, rows: int) -> FrameBlock:
        values = self.array(given)
        if _is(places, _SLICE):
            if not all(part is None or type(part) is int for part in places.args) or len(places.args) != 3:  # noqa: PLR2004 - start, stop and step
                raise self._wrong("the place of a column is no number")
            chosen = range(columns)[slice(*places.args)] if places.args[2] != 0 else range(0)
            at = np.array(chosen, dtype=np.int64)
        else:
            found = self.array(places)
            if found.dtype.kind not in "iu" or found.ndim != 1:
                raise self._wrong("the place of a column is no number")
            at = found.astype(np.int64)
        if values.ndim == 1 and at.size == 1:  # pandas' form of a column with an extension type
            values = values.reshape(1, -1)
        if values.shape != (at.size, rows):
            raise self._wrong(f"a block of {values.shape} values does not fit {at.size} columns of {rows} rows")
        return FrameBlock(at, values)

    def labels(self, given: object) -> Labels:
        match given:
            case PickledCall(args=(NamedObject() as kind, {"start": int(), "stop": int(), "step": int()} as ends)) if (
                kind.pair in _RANGE_INDEX
                and ends["step"] != 0
                and all(abs(ends[end]) < _MOST_LABELS for end in ("start", "stop", "step"))
            ):
                return range(ends["start"], ends["stop"], ends["step"])
            case PickledCall(args=(NamedObject(), {"data": data})) if _is(given, *_NEW_INDEX):
                found = self.array(data)
                if found.ndim == 1:
                    return found
        raise self._wrong("the DataFrame has labels of an unknown kind")

    def array(self, given: object) -> NDArray[Any]:
        match given:
            case PickledCall(state=(_, tuple() as shape, kind, bool() as by_column, data)) if _is(given, *_RECONSTRUCT):
                return self._values(data, self._type(kind), shape, "F" if by_column else "C")
            case PickledCall(args=(data, kind, tuple() as shape, "C" | "F" as order)) if _is(given, *_FROM_BUFFER):
                return self._values(data, self._type(kind), shape, order)
            case PickledCall(state=tuple() as parts) if _is(given, _BACKED):
                for part in parts:
                    if _is(part, *_RECONSTRUCT, *_FROM_BUFFER):
                        return self.array(part)
            case PickledCall(state={"_data": data} | {"_ndarray": data}) if _is(given, *_TIME_ARRAY):
                if _is(data, *_RECONSTRUCT, *_FROM_BUFFER):
                    return self.array(data)
            case PickledCall(state={"_pa_array": PickledCall(args=(tuple() as parts,)) as data}) if _is(
                given, _ARROW_TEXTS
            ):
                if _is(data, _ARROW_ARRAY):
                    return self._texts(parts)
        raise self._wrong("the DataFrame contains values of an unknown type")

    def _texts(self, parts: tuple[Any, ...]) -> NDArray[Any]:
        match parts:
            case (PickledCall(args=(str() as name,)) as kind, int() as count, 0, 0, [None, ends, texts], [], None) if (
                _is(kind, _ARROW_TYPE) and _is(ends, _ARROW_BUFFER) and _is(texts, _ARROW_BUFFER)
            ):
                width = _ARROW_OFFSETS.get(name)
                octets = self._octets(ends.args[0] if ends.args else None)
                text = self._octets(texts.args[0] if texts.args else None)
                if width is not None and count >= 0 and len(octets) >= np.dtype(width).itemsize * (count + 1):
                    bounds = np.frombuffer(octets, dtype=width, count=count + 1)
                    if bounds[0] >= 0 and bounds[-1] <= len(text) and not (np.diff(bounds) < 0).any():
                        pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
                        flat = np.empty(count, dtype=object)
                        flat[:] = [text[begin:end].decode(errors="replace") for begin, end in pairs]
                        return flat
        raise self._wrong("the DataFrame contains text in an unknown encoding")

    def _values(self, data: object, kind: np.dtype[Any] | None, shape: tuple[Any, ...], order: str) -> NDArray[Any]:
        if len(shape) > _MOST_DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
            raise self._wrong("an array in the pickle has an impossible shape")
        count = math.prod(shape)
        if kind is None:
            if type(data) is not list or len(data) != count:
                raise self._wrong(f"an array of the shape {shape} needs {count} values")
            flat = np.empty(count, dtype=object)
            for place, value in enumerate(data):
                # Keep cells, but convert numpy numbers, alone or in a list, to plain ones
                if type(value) is list:
                    flat[place] = [self._number(item) if _is(item, *_SCALAR) else item for item in value]
                else:
                    flat[place] = self._number(value) if _is(value, *_SCALAR) else value
        else:
            octets = self._octets(data)
            if len(octets) != count * kind.itemsize:
                raise self._wrong(f"{len(octets)} bytes are not an array of {count} values of {kind}")
            flat = np.frombuffer(octets, dtype=kind, count=count)
        return flat.reshape(shape, order="F" if order == "F" else "C")

    def _type(self, given: object) -> np.dtype[Any] | None:
        match given:
            case PickledCall(args=("O8" | "O4", *_)) if _is(given, _DTYPE):
                return None
            case PickledCall(args=("M8", *_), state=(_, "<" | ">" as order, *_, (_, (unit, 1, *_)))) if _is(
                given, _DTYPE
            ):
                name = _UNITS.get(bytes(self._octets(unit)))
                if name is not None:
                    return np.dtype(f"{order}M8[{name}]")
            case PickledCall(args=(str() as name, *_), state=(_, "<" | ">" | "|" as order, *_)) if _is(given, _DTYPE):
                if _PLAIN_TYPE.fullmatch(name) and name != "f1":
                    kind: np.dtype[Any] = np.dtype(order + name)
                    return kind
        raise self._wrong("an array contains values of an unknown type")

    def _octets(self, given: object) -> bytes | bytearray:
        match given:
            case bytes() | bytearray():
                return given
            case PickledCall(args=(bytes() | bytearray() as found,)) if _is(given, _BYTE_ARRAY):
                return found
            case PickledCall(args=(PickledCall() as inner,)) if _is(given, _BYTE_ARRAY) and _is(inner, _ENCODE, _BYTES):
                return self._octets(inner)
            case PickledCall(args=()) if _is(given, _BYTES):
                return b""
            case PickledCall(args=(str() as text, "latin1" | "latin-1")) if _is(given, _ENCODE, _BYTE_ARRAY):
                try:
                    return text.encode("latin-1")
                except UnicodeEncodeError as error:
                    raise self._wrong("bytes in the pickle are no bytes") from error
        raise self._wrong("the pickle has another value in place of bytes")

    def _number(self, scalar: PickledCall) -> object:
        kind = self._type(scalar.args[0]) if len(scalar.args) == 2 else None  # noqa: PLR2004 - a type and its bytes
        if kind is None:
            raise self._wrong("a number in the pickle has no type")
        return self._values(scalar.args[1], kind, (), "C").item()

    def _text(self, label: object) -> str:
        if type(label) not in (str, int, float):
            raise self._wrong("a column name of the DataFrame is neither text nor a number")
        return str(label)


def _is(given: object, *names: tuple[str, str]) -> TypeGuard[PickledCall]:
    return isinstance(given, PickledCall) and type(given).pair in names
