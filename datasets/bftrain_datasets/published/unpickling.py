"""Pickled data read as data: calls and objects in a pickle are recorded, and never executed.

Python's own unpickler imports and calls anything that a file names. This one is a small machine for the few
operations that data needs. A call in the pickle becomes an inert ``PickledCall`` (the callable's name and its
arguments), for a reader that knows the form. Only names in an allowlist are accepted; no object of that name
is touched.
"""

from __future__ import annotations

import gzip
import lzma
import struct
import tarfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

from bftrain.errors import BadInput

MOST_STEPS: Final = 4_000_000  # operations; the published files need 40,000 at most
MOST_BYTES: Final = 1 << 33  # of all texts and byte strings together
_LONGEST_INTEGER_BYTES: Final = 16
_LONGEST_NAME_BYTES: Final = 1 << 10
_BLOCK_BYTES: Final = 1 << 20
_PROTOCOLS: Final = range(2, 6)
_PACKED_WRONG: Final = (zlib.error, lzma.LZMAError, tarfile.TarError, EOFError, gzip.BadGzipFile)
REMEDY: Final = "only tables that pandas saved with to_pickle are read"

# Python writes these into pickles of protocol 2 for names that have changed since
_OLD_MODULES: Final = {"__builtin__": "builtins", "copy_reg": "copyreg"}

# Operations that data does not need, by their byte, with names for messages
_REFUSED: Final = {
    b"P": "PERSID", b"Q": "BINPERSID", b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4", b"i": "INST",
    b"o": "OBJ", b"\x92": "NEWOBJ_EX", b"\x97": "NEXT_BUFFER", b"\x98": "READONLY_BUFFER", b"0": "POP",
    b"1": "POP_MARK", b"2": "DUP", b"\x8f": "EMPTY_SET", b"\x90": "ADDITEMS", b"\x91": "FROZENSET", b"I": "INT",
    b"L": "LONG", b"F": "FLOAT", b"V": "UNICODE", b"S": "STRING", b"T": "BINSTRING", b"U": "SHORT_BINSTRING",
    b"p": "PUT", b"g": "GET", b"l": "LIST", b"d": "DICT",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NamedObject:
    """A name used in the pickle."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class PickledCall:
    """An object of the pickle: the result of calling ``what`` with ``args``, with a ``state`` set afterwards."""

    what: NamedObject
    args: tuple[Any, ...]
    state: Any = None


class _Mark:
    """The begin of the items of a list, tuple or dictionary on the stack."""


_MARK: Final = _Mark()


def read_pickle(file: IO[bytes], where: str, admitted: Collection[tuple[str, str]]) -> Any:  # noqa: ANN401 - data is what it is
    """Return the content of a pickle: plain values, and a ``PickledCall`` per object; raise ``BadInput`` for others.

    ``admitted`` are the accepted pairs of module and name. The stream is read once, up to the end
    of the pickle. Byte strings above one MiB become ``bytearray``.
    """
    return _Machine(file, where, admitted).run()


class _Machine:
    """Executes operations on a stack and a memo."""

    def __init__(self, file: IO[bytes], where: str, admitted: Collection[tuple[str, str]]) -> None:
        self._file = file
        self._where = where
        self._admitted = admitted
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._room = MOST_BYTES

    def run(self) -> Any:  # noqa: ANN401 - data is what it is
        try:
            if self.take(1) != b"\x80" or self.take(1)[0] not in _PROTOCOLS:
                raise self._wrong("not a pickle of Python 3")
            for _ in range(MOST_STEPS):
                code = self.take(1)
                if code == b".":
                    return self._end()
                step = _STEPS.get(code)
                if step is None:
                    raise self._no_operation(code)
                step(self)
        except (IndexError, OverflowError) as error:
            raise BadInput("a damaged pickle", where=self._where, fix="fetch the file again") from error
        except _PACKED_WRONG as error:  # the stream may come from an archive
            raise BadInput(f"cannot be unpacked: {error}", where=self._where, fix="fetch the file again") from error
        except UnicodeDecodeError as error:
            raise BadInput("a text in the pickle is not UTF-8", where=self._where, fix=REMEDY) from error
        except MemoryError as error:
            raise BadInput("the pickle needs more memory than available", where=self._where) from error
        raise self._wrong(f"the pickle has more than {MOST_STEPS:,} operations")

    def _end(self) -> Any:  # noqa: ANN401 - data is what it is
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            raise self._wrong("a damaged pickle")
        return self._stack[0]

    def _wrong(self, what: str) -> BadInput:
        return BadInput(what, where=self._where, fix=REMEDY)

    def _no_operation(self, code: bytes) -> BadInput:
        if code in _REFUSED:
            return self._wrong(f"the pickle uses the operation {_REFUSED[code]}, which tables do not need")
        return self._wrong(f"a damaged pickle: unknown operation {code!r}")

    # Bytes

    def take(self, count: int) -> bytes:
        found = self._file.read(count)
        while len(found) < count:
            more = self._file.read(count - len(found))
            if not more:
                raise BadInput("the pickle is truncated", where=self._where, fix="fetch the file again")
            found += more
        return found

    def number(self, form: str) -> int:
        (number,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(number)

    def octets(self, form: str) -> bytes | bytearray:
        """Read bytes after their count. Memory grows with the data, not with the claimed count."""
        count = self.number(form)
        self._room -= count
        if self._room < 0:
            raise self._wrong(f"the pickle requests more than {MOST_BYTES:,} bytes of memory")
        if count <= _BLOCK_BYTES:
            return self.take(count)
        whole = bytearray()
        while len(whole) < count:
            whole += self.take(min(count - len(whole), _BLOCK_BYTES))
        return whole

    def _line(self) -> str:
        line = self._file.readline(_LONGEST_NAME_BYTES)
        if not line.endswith(b"\n"):
            raise self._wrong("the pickle is truncated, or has a name that is too long")
        return line[:-1].decode()

    # The stack

    def push(self, value: object) -> None:
        self._stack.append(value)

    def pop(self) -> Any:  # noqa: ANN401 - data is what it is
        value = self._stack.pop()
        if value is _MARK:
            raise IndexError
        return value

    def pop_items(self) -> list[Any]:
        place = len(self._stack) - 1
        while self._stack[place] is not _MARK:  # IndexError without a mark
            place -= 1
            if place < 0:
                raise IndexError
        items = self._stack[place + 1 :]
        del self._stack[place:]
        return items

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def long_integer(self) -> None:
        count = self.number("<B")
        if count > _LONGEST_INTEGER_BYTES:
            raise self._wrong(f"the pickle holds a whole number of {count} bytes")
        self.push(int.from_bytes(self.take(count), "little", signed=True))

    def extend(self, values: list[Any]) -> None:
        self._top(list).extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self._top(dict)
        for place in range(0, len(values), 2):
            key, value = values[place], values[place + 1]
            if not isinstance(key, str):  # hashing other types could take for ever, or overflow the C stack
                raise self._wrong("a dictionary in the pickle has a key that is not text")
            target[key] = value

    def _top(self, kind: type[Any]) -> Any:  # noqa: ANN401 - data is what it is
        if type(self._stack[-1]) is not kind:
            raise self._wrong(f"a damaged pickle: a {kind.__name__} is missing")
        return self._stack[-1]

    def remember(self, place: int | None = None) -> None:
        if self._stack[-1] is _MARK:
            raise IndexError
        self._memo[len(self._memo) if place is None else place] = self._stack[-1]

    def recall(self, place: int) -> None:
        if place not in self._memo:
            raise self._wrong("a damaged pickle: it recalls an unknown entry")
        self.push(self._memo[place])

    # Names and objects

    def named(self) -> None:
        module = self._line()
        self._ask(module, self._line())

    def named_on_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise self._wrong("a damaged pickle: it uses a name that is not text")
        self._ask(module, name)

    def _ask(self, module: str, name: str) -> None:
        module = _OLD_MODULES.get(module, module)
        if (module, name) not in self._admitted:
            asked = f"{module}.{name}"[:_LONGEST_NAME_BYTES]
            shown = asked if asked.isprintable() else ascii(asked)
            raise self._wrong(f"the pickle uses {shown}, which tables do not need")
        self.push(NamedObject(module, name))

    def make(self) -> None:
        args, what = self.pop(), self.pop()
        if type(what) is not NamedObject or type(args) is not tuple:
            raise self._wrong("the pickle calls something without a name")
        self.push(PickledCall(what, args))

    def build(self) -> None:
        state = self.pop()
        made = self._top(PickledCall)
        if made.state is not None:
            raise self._wrong("the pickle gives an object two states")
        made.state = state


_STEPS: Final[Mapping[bytes, Callable[[_Machine], object]]] = {
    b"\x95": lambda machine: machine.number("<Q"),  # the size of a frame, which is not needed
    b"(": lambda machine: machine.push(_MARK),
    b"N": lambda machine: machine.push(None),
    b"\x88": lambda machine: machine.push(True),  # noqa: FBT003 - the value that is read
    b"\x89": lambda machine: machine.push(False),  # noqa: FBT003 - the value that is read
    b"J": lambda machine: machine.push(machine.number("<i")),
    b"K": lambda machine: machine.push(machine.number("<B")),
    b"M": lambda machine: machine.push(machine.number("<H")),
    b"\x8a": _Machine.long_integer,
    b"G": lambda machine: machine.push(*struct.unpack(">d", machine.take(8))),
    b"\x8c": lambda machine: machine.push(machine.octets("<B").decode("utf-8", "surrogatepass")),
    b"X": lambda machine: machine.push(machine.octets("<I").decode("utf-8", "surrogatepass")),
    b"\x8d": lambda machine: machine.push(machine.octets("<Q").decode("utf-8", "surrogatepass")),
    b"C": lambda machine: machine.push(machine.octets("<B")),
    b"B": lambda machine: machine.push(machine.octets("<I")),
    b"\x8e": lambda machine: machine.push(machine.octets("<Q")),
    b"\x96": lambda machine: machine.push(machine.octets("<Q")),
    b"]": lambda machine: machine.push([]),
    b")": lambda machine: machine.push(()),
    b"}": lambda machine: machine.push({}),
    b"a": lambda machine: machine.extend([machine.pop()]),
    b"e": lambda machine: machine.extend(machine.pop_items()),
    b"s": lambda machine: machine.set_items([machine.pop(), machine.pop()][::-1]),
    b"u": lambda machine: machine.set_items(machine.pop_items()),
    b"t": lambda machine: machine.push(tuple(machine.pop_items())),
    b"\x85": lambda machine: machine.tuple_of(1),
    b"\x86": lambda machine: machine.tuple_of(2),
    b"\x87": lambda machine: machine.tuple_of(3),
    b"\x94": _Machine.remember,
    b"q": lambda machine: machine.remember(machine.number("<B")),
    b"r": lambda machine: machine.remember(machine.number("<I")),
    b"h": lambda machine: machine.recall(machine.number("<B")),
    b"j": lambda machine: machine.recall(machine.number("<I")),
    b"c": _Machine.named,
    b"\x93": _Machine.named_on_stack,
    b"R": _Machine.make,
    b"\x81": _Machine.make,
    b"b": _Machine.build,
}
