"""Pickled data read as data: what a pickle would call or build is written down, and nothing of it is ever run.

Python's own unpickler imports and calls anything that a file asks for. This one is a small machine for the few
operations that data needs. A call in the pickle becomes an inert ``PickledCall`` (the callable's name and its
arguments), for a reader that knows the form. Only names in an allowlist may be asked for at all; no object of that name
is touched.
"""

from __future__ import annotations

import gzip
import lzma
import struct
import tarfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from bftrain.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

MOST_STEPS: Final = 4_000_000  # operations; the published files need 40,000 at most
MOST_BYTES: Final = 1 << 33  # of all texts and byte strings together
_LONGEST_INTEGER_BYTES: Final = 16
_LONGEST_NAME_BYTES: Final = 1 << 10
_BLOCK_BYTES: Final = 1 << 20
_PROTOCOLS: Final = range(2, 6)
_PACKED_WRONG: Final = (zlib.error, lzma.LZMAError, tarfile.TarError, EOFError, gzip.BadGzipFile)
REMEDY: Final = "only tables that pandas saved with to_pickle are read"

# Python writes these into pickles of protocol 2 for names that are called otherwise today
_OLD_MODULES: Final = {"__builtin__": "builtins", "copy_reg": "copyreg"}

# Operations that data has no use for, by their byte: what the complaint calls them
_REFUSED: Final = {
    b"P": "PERSID", b"Q": "BINPERSID", b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4", b"i": "INST",
    b"o": "OBJ", b"\x92": "NEWOBJ_EX", b"\x97": "NEXT_BUFFER", b"\x98": "READONLY_BUFFER", b"0": "POP",
    b"1": "POP_MARK", b"2": "DUP", b"\x8f": "EMPTY_SET", b"\x90": "ADDITEMS", b"\x91": "FROZENSET", b"I": "INT",
    b"L": "LONG", b"F": "FLOAT", b"V": "UNICODE", b"S": "STRING", b"T": "BINSTRING", b"U": "SHORT_BINSTRING",
    b"p": "PUT", b"g": "GET", b"l": "LIST", b"d": "DICT",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NamedObject:
    """Something that the pickle asks for by name."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class PickledCall:
    """What the pickle would have made: by calling ``what`` with ``args``, and then giving it a ``state``."""

    what: NamedObject
    args: tuple[Any, ...]
    state: Any = None


class _Mark:
    """Where the items of a list, tuple or dictionary begin on the stack."""


_MARK: Final = _Mark()


def read_pickle(file: IO[bytes], where: str, admitted: Collection[tuple[str, str]]) -> Any:  # noqa: ANN401 - data is what it is
    """Read what a pickle holds: plain values, and a ``PickledCall`` for each object. Raises ``BadInput`` for all else.

    ``admitted`` are the pairs of module and name that may be asked for. The stream is read once, as far as the end
    of the pickle. Byte strings above one MiB come as ``bytearray``.
    """
    return _Machine(file, where, admitted).run()


class _Machine:
    """Reads operations and keeps the stack and the memo that they work on."""

    def __init__(self, file: IO[bytes], where: str, admitted: Collection[tuple[str, str]]) -> None:
        self._file = file
        self._where = where
        self._admitted = admitted
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._room = MOST_BYTES

    def run(self) -> Any:  # noqa: ANN401 - data is what it is
        """Follow the operations to the end."""
        try:
            if self._take(1) != b"\x80" or self._take(1)[0] not in _PROTOCOLS:
                raise self._wrong("not a pickle of Python 3")
            for _ in range(MOST_STEPS):
                code = self._take(1)
                if code == b".":
                    return self._end()
                step = _STEPS.get(code)
                if step is None:
                    raise self._no_operation(code)
                step(self)
        except (IndexError, OverflowError) as error:
            raise BadInput("a damaged pickle", where=self._where, fix="fetch the file again") from error
        except _PACKED_WRONG as error:  # the stream may come out of an archive
            raise BadInput(f"cannot be unpacked: {error}", where=self._where, fix="fetch the file again") from error
        except UnicodeDecodeError as error:
            raise BadInput("a text in the pickle is not UTF-8", where=self._where, fix=REMEDY) from error
        except MemoryError as error:
            raise BadInput("the pickle needs more memory than there is", where=self._where) from error
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
        return self._wrong(f"a damaged pickle: there is no operation {code!r}")

    # Bytes

    def _take(self, count: int) -> bytes:
        """Read a small number of bytes."""
        found = self._file.read(count)
        while len(found) < count:
            more = self._file.read(count - len(found))
            if not more:
                raise BadInput("the pickle is cut off", where=self._where, fix="fetch the file again")
            found += more
        return found

    def _number(self, form: str) -> int:
        (number,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(number)

    def _buffer(self, count: int) -> bytes | bytearray:
        """Read bytes that may be many; memory grows with what is there, not with the number that the pickle claims."""
        self._room -= count
        if self._room < 0:
            raise self._wrong(f"the pickle asks for more than {MOST_BYTES:,} bytes of memory")
        if count <= _BLOCK_BYTES:
            return self._take(count)
        whole = bytearray()
        while len(whole) < count:
            whole += self._take(min(count - len(whole), _BLOCK_BYTES))
        return whole

    def _line(self) -> str:
        line = self._file.readline(_LONGEST_NAME_BYTES)
        if not line.endswith(b"\n"):
            raise self._wrong("the pickle is cut off, or asks for a name that is too long")
        return line[:-1].decode()

    # The stack

    def push(self, value: object) -> None:
        """Put a value on the stack."""
        self._stack.append(value)

    def pop(self) -> Any:  # noqa: ANN401 - data is what it is
        """Take the value on top."""
        value = self._stack.pop()
        if value is _MARK:
            raise IndexError
        return value

    def pop_items(self) -> list[Any]:
        """Take all values above the last mark, and the mark."""
        place = len(self._stack) - 1
        while self._stack[place] is not _MARK:  # IndexError if there is none
            place -= 1
            if place < 0:
                raise IndexError
        items = self._stack[place + 1 :]
        del self._stack[place:]
        return items

    def tuple_of(self, count: int) -> None:
        """Make a tuple of the values on top."""
        values = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def frame(self) -> None:
        """Pass over the size of a frame: only the operations themselves say where the pickle ends."""
        self._number("<Q")

    # Values

    def integer(self, form: str) -> None:
        """Read a whole number of fixed width."""
        self.push(self._number(form))

    def long_integer(self) -> None:
        """Read a whole number of up to 128 bits."""
        count = self._number("<B")
        if count > _LONGEST_INTEGER_BYTES:
            raise self._wrong(f"the pickle holds a whole number of {count} bytes")
        self.push(int.from_bytes(self._take(count), "little", signed=True))

    def real(self) -> None:
        """Read a floating-point number."""
        (number,) = struct.unpack(">d", self._take(8))
        self.push(number)

    def text(self, form: str) -> None:
        """Read a text after its length."""
        self.push(self._buffer(self._number(form)).decode("utf-8", "surrogatepass"))

    def octets(self, form: str) -> None:
        """Read bytes after their number."""
        self.push(self._buffer(self._number(form)))

    def empty(self, kind: Callable[[], object]) -> None:
        """Begin a list, a tuple or a dictionary."""
        self.push(kind())

    def append(self) -> None:
        """Append one value to a list."""
        value = self.pop()
        self._top(list).append(value)

    def extend(self) -> None:
        """Append all values above the mark to a list."""
        values = self.pop_items()
        self._top(list).extend(values)

    def set_item(self) -> None:
        """Set one item of a dictionary."""
        value, key = self.pop(), self.pop()
        self._set(self._top(dict), key, value)

    def set_items(self) -> None:
        """Set all items above the mark in a dictionary."""
        values = self.pop_items()
        target = self._top(dict)
        for place in range(0, len(values), 2):
            self._set(target, values[place], values[place + 1])

    def _set(self, target: dict[Any, Any], key: object, value: object) -> None:
        if not isinstance(key, str):  # the hash of anything deeper could take for ever, or overflow the C stack
            raise self._wrong("a dictionary in the pickle has a key that is no text")
        target[key] = value

    def _top(self, kind: type[Any]) -> Any:  # noqa: ANN401 - data is what it is
        if type(self._stack[-1]) is not kind:
            raise self._wrong(f"a damaged pickle: a {kind.__name__} is missing")
        return self._stack[-1]

    # The memo

    def remember(self, place: int | None = None) -> None:
        """Keep the value on top under a number."""
        if self._stack[-1] is _MARK:
            raise IndexError
        self._memo[len(self._memo) if place is None else place] = self._stack[-1]

    def remember_at(self, form: str) -> None:
        """Keep the value on top under the number that follows."""
        self.remember(self._number(form))

    def recall(self, form: str) -> None:
        """Put the value that was kept under a number on the stack."""
        place = self._number(form)
        if place not in self._memo:
            raise self._wrong("a damaged pickle: it recalls what was not there")
        self.push(self._memo[place])

    # Names and objects

    def named(self) -> None:
        """Ask for a name written as two lines."""
        module = self._line()
        self._ask(module, self._line())

    def named_on_stack(self) -> None:
        """Ask for a name whose parts are the two texts on top."""
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise self._wrong("a damaged pickle: it asks for a name that is no text")
        self._ask(module, name)

    def _ask(self, module: str, name: str) -> None:
        module = _OLD_MODULES.get(module, module)
        if (module, name) not in self._admitted:
            asked = f"{module}.{name}"[:_LONGEST_NAME_BYTES]
            shown = asked if asked.isprintable() else ascii(asked)
            raise self._wrong(f"the pickle asks for {shown}, which is not among the parts of a table")
        self.push(NamedObject(module, name))

    def make(self) -> None:
        """Write down a call."""
        args, what = self.pop(), self.pop()
        if type(what) is not NamedObject or type(args) is not tuple:
            raise self._wrong("the pickle calls something that is no name")
        self.push(PickledCall(what, args))

    def build(self) -> None:
        """Write down the state of what was made last."""
        state = self.pop()
        made = self._top(PickledCall)
        if made.state is not None:
            raise self._wrong("the pickle gives an object two states")
        made.state = state


_STEPS: Final[Mapping[bytes, Callable[[_Machine], None]]] = {
    b"\x95": _Machine.frame,
    b"(": lambda machine: machine.push(_MARK),
    b"N": lambda machine: machine.push(None),
    b"\x88": lambda machine: machine.push(True),  # noqa: FBT003 - the value that is read
    b"\x89": lambda machine: machine.push(False),  # noqa: FBT003 - the value that is read
    b"J": lambda machine: machine.integer("<i"),
    b"K": lambda machine: machine.integer("<B"),
    b"M": lambda machine: machine.integer("<H"),
    b"\x8a": _Machine.long_integer,
    b"G": _Machine.real,
    b"\x8c": lambda machine: machine.text("<B"),
    b"X": lambda machine: machine.text("<I"),
    b"\x8d": lambda machine: machine.text("<Q"),
    b"C": lambda machine: machine.octets("<B"),
    b"B": lambda machine: machine.octets("<I"),
    b"\x8e": lambda machine: machine.octets("<Q"),
    b"\x96": lambda machine: machine.octets("<Q"),
    b"]": lambda machine: machine.empty(list),
    b")": lambda machine: machine.empty(tuple),
    b"}": lambda machine: machine.empty(dict),
    b"a": _Machine.append,
    b"e": _Machine.extend,
    b"s": _Machine.set_item,
    b"u": _Machine.set_items,
    b"t": lambda machine: machine.push(tuple(machine.pop_items())),
    b"\x85": lambda machine: machine.tuple_of(1),
    b"\x86": lambda machine: machine.tuple_of(2),
    b"\x87": lambda machine: machine.tuple_of(3),
    b"\x94": _Machine.remember,
    b"q": lambda machine: machine.remember_at("<B"),
    b"r": lambda machine: machine.remember_at("<I"),
    b"h": lambda machine: machine.recall("<B"),
    b"j": lambda machine: machine.recall("<I"),
    b"c": _Machine.named,
    b"\x93": _Machine.named_on_stack,
    b"R": _Machine.make,
    b"\x81": _Machine.make,
    b"b": _Machine.build,
}
