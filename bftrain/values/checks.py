"""Checks of fields, run when a value is constructed; every error names the field.

The checks also normalise: a numpy integer becomes an ``int``, a list becomes a ``tuple``, an ``int`` in a
``float`` field becomes a ``float``. So a value is the same whether typed, computed or read from JSON.
"""

from __future__ import annotations

import math
from collections import Counter
from enum import StrEnum
from operator import index
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, get_args

from msgspec.structs import force_setattr

from bftrain.errors import BadValue, near, suggestion
from bftrain.values.wire import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from msgspec import Struct

T = TypeVar("T")

_SHOWN_LENGTH: Final = 60
_LARGEST_INTEGER: Final = 2**63 - 1  # the limit of SQLite and numpy


def reject(value: Struct, field: str, problem: str, fix: str | None = None) -> NoReturn:
    """Raise the error for ``field`` of ``value``."""
    raise BadValue(problem, where=f"{type(value).__name__}.{field}", fix=fix)


def finite(value: Struct) -> None:
    """Check that no number is infinite: msgspec's bounds allow that, and JSON would contain null instead."""
    for field in value.__struct_fields__:
        number = getattr(value, field)
        if isinstance(number, float) and not math.isfinite(number):
            reject(value, field, f"must be finite, not {number}")


def instead_of_seconds(value: Struct, field: str, word: str) -> None:
    """Check that a text in place of seconds is ``word`` in any case; store it in lower case."""
    given = str(getattr(value, field))
    if given.lower() != word:
        problem = f"must be a number of seconds or '{word}', not {_show(given)}"
        reject(value, field, problem, near(given, (word,)) or None)
    force_setattr(value, field, word)


def _normalise(value: Struct, field: str, convert: Callable[[object], T], wanted: str) -> T:
    given = getattr(value, field)
    try:
        converted = convert(given)
    except OverflowError:
        reject(value, field, f"is too large: {_show(given)}")
    except (TypeError, ValueError):
        reject(value, field, f"must be {wanted}, not {_show(given)}")
    if converted is not given:
        force_setattr(value, field, converted)
    return converted


def _show(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def _integer(given: object) -> int:
    if isinstance(given, bool):
        raise TypeError
    number = index(given)  # type: ignore[arg-type]  # index() raises for other types
    if abs(number) > _LARGEST_INTEGER:
        raise OverflowError
    return number


def _count(given: object) -> int:
    number = _integer(given)
    if number < 0:
        raise ValueError
    return number


def _number(given: object) -> float:
    if type(given) is float:
        number = given
    elif isinstance(given, (bool, str, bytes)):
        raise TypeError
    else:
        number = float(given)  # type: ignore[arg-type]  # float() raises for other types
    if not math.isfinite(number):
        raise ValueError
    return number


def _plain_text(given: object) -> str:
    if type(given) is str:
        return given
    if isinstance(given, str):  # numpy's text and enumerations have no JSON form
        return str.__str__(given)
    raise TypeError


def _name(given: object) -> str:
    name = _plain_text(given)
    if not name:
        raise ValueError
    return name


def _names(given: object) -> tuple[str, ...]:
    return given if type(given) is tuple and _all_names(given) else _tuple(given, _name)


def _all_names(given: Collection[object]) -> bool:
    """Return whether all are valid names already: one check for all, because there may be thousands."""
    return set(map(type, given)) <= {str} and "" not in given


def _counted(given: object) -> Mapping[str, int]:
    items = dict(given)  # type: ignore[call-overload]  # dict() raises for other types
    plain = set(map(type, items.values())) <= {int} and _all_names(items)
    if plain and (not items or 0 <= min(items.values()) <= max(items.values()) <= _LARGEST_INTEGER):
        return MappingProxyType(items)
    return MappingProxyType({_name(name): _count(item) for name, item in items.items()})


def _tuple(given: object, convert: Callable[[object], T]) -> tuple[T, ...]:
    if isinstance(given, (str, bytes)):
        raise TypeError
    return tuple(convert(item) for item in given)  # type: ignore[attr-defined]  # TypeError if it does not iterate


def integer(value: Struct, *fields: str, at_least: int) -> int:
    """Check that each of ``fields`` is an integer of ``at_least`` or more; return the last value."""
    number = at_least
    for field in fields:
        number = _normalise(value, field, _integer, "a whole number")
        if number < at_least:
            reject(value, field, f"must be at least {at_least}, not {number}")
    return number


def bounds(value: Struct) -> None:
    """Check that ``min_nodes`` and ``max_nodes`` are whole numbers above 0, the second not below the first."""
    smallest = integer(value, "min_nodes", at_least=1)
    largest = integer(value, "max_nodes", at_least=1)
    if largest < smallest:
        reject(value, "max_nodes", f"is {largest}, below min_nodes = {smallest}")


def number(
    value: Struct, *fields: str, at_least: float | None = None, above: float | None = None, at_most: float | None = None
) -> float:
    """Check that each of ``fields`` is a finite number within the bounds; return the last value."""
    checked = 0.0
    for field in fields:
        checked = getattr(value, field)
        if type(checked) is not float or not math.isfinite(checked):
            checked = _normalise(value, field, _number, "a finite number")
        if at_least is not None and checked < at_least:
            reject(value, field, f"must be at least {at_least:g}, not {checked:g}")
        if above is not None and checked <= above:
            reject(value, field, f"must be above {above:g}, not {checked:g}")
        if at_most is not None and checked > at_most:
            reject(value, field, f"must not exceed {at_most:g}, but is {checked:g}")
    return checked


def optional_number(value: Struct, *fields: str, at_least: float | None = None, above: float | None = None) -> None:
    """Check like :func:`number`, but allow ``None``."""
    for field in fields:
        if getattr(value, field) is not None:
            number(value, field, at_least=at_least, above=above)


def text(value: Struct, *fields: str) -> str:
    """Check that each of ``fields`` is text, not blank and without surrounding space; return the last value."""
    given = ""
    for field in fields:
        given = _normalise(value, field, _plain_text, "text")
        if not given or given != given.strip() or not given.isprintable():
            reject(value, field, f"must be printable text without surrounding space, not {_show(given)}")
    return given


def optional_text(value: Struct, *fields: str) -> None:
    """Check like :func:`text`, but allow empty text."""
    for field in fields:
        if getattr(value, field) != "":
            text(value, field)


def words(value: Struct, *fields: str) -> None:
    """Check that each of ``fields`` is text, such as a program's output; replace invalid Unicode by ``?``."""
    for field in fields:
        given = _normalise(value, field, _plain_text, "text")
        if not given.isascii():
            # Undecodable bytes arrive as lone surrogates, which no JSON can carry
            force_setattr(value, field, given.encode("utf-8", "replace").decode())


def sequence(value: Struct, field: str, convert: Callable[[object], T], wanted: str) -> tuple[T, ...]:
    """Check that ``field`` is a sequence of items accepted by ``convert``; store it as a tuple."""
    return _normalise(value, field, lambda given: _tuple(given, convert), wanted)


def integers(value: Struct, field: str) -> tuple[int, ...]:
    """Check that ``field`` is a sequence of whole numbers."""
    return sequence(value, field, _integer, "a list of whole numbers")


def numbers(value: Struct, field: str) -> tuple[float, ...]:
    """Check that ``field`` is a sequence of finite numbers."""
    return sequence(value, field, _number, "a list of finite numbers")


def rows(value: Struct, field: str) -> tuple[tuple[float, ...], ...]:
    """Check that ``field`` is a sequence of rows of finite numbers."""
    return sequence(value, field, lambda row: _tuple(row, _number), "rows of finite numbers")


def names(value: Struct, field: str) -> tuple[str, ...]:
    """Check that ``field`` is a sequence of different node names: not empty, printable, without spaces."""
    found = _normalise(value, field, _names, "a list of names")
    twice = repeated(found)
    if twice is not None:
        reject(value, field, f"names '{twice}' twice")
    joined = "".join(found)  # a single check: there may be thousands of nodes
    if " " in joined or not joined.isprintable():
        odd = next(name for name in found if " " in name or not name.isprintable())
        reject(value, field, f"must contain names without spaces and control characters, not {_show(odd)}")
    return found


def texts(value: Struct, field: str) -> tuple[str, ...]:
    """Check that ``field`` is a sequence of texts of any kind."""
    return sequence(value, field, _plain_text, "a list of texts")


def one_of(value: Struct, field: str, known: Sequence[str]) -> None:
    """Check that ``field`` is one of the ``known`` texts."""
    given = text(value, field)
    if given not in known:
        reject(value, field, f"is {given!r}", suggestion(given, known))


def repeated(labels: Sequence[str]) -> str | None:
    """Return the first of ``labels`` that occurs twice, or ``None``."""
    if len(set(labels)) == len(labels):  # the usual case, at half the cost of counting
        return None
    return next(label for label, times in Counter(labels).items() if times > 1)


def different(value: Struct, field: str, labels: Sequence[str], fix: str) -> None:
    """Check that all ``labels``, the names of the items in ``field``, are different."""
    twice = repeated(labels)
    if twice is not None:
        reject(value, field, f"uses the name '{twice}' twice", fix)


def counts(value: Struct, field: str) -> Mapping[str, int]:
    """Check that ``field`` maps names to whole numbers of at least 0."""
    return _normalise(value, field, _counted, "a mapping from names to whole numbers of at least 0")


def pools(value: Struct, field: str) -> Mapping[str, int]:
    """Check that ``field`` maps kinds to numbers of nodes; the empty name is for nodes without a kind."""
    wanted = "a mapping from kinds to whole numbers of at least 0"
    return frozen_mapping(value, field, _count, wanted, or_empty=True)


def holdings(value: Struct, field: str) -> Mapping[str, tuple[str, ...]]:
    """Check that ``field`` maps names to lists of names."""
    return frozen_mapping(value, field, _names, "a mapping from names to lists of names")


def frozen_mapping(
    value: Struct,
    field: str,
    convert: Callable[[Any], Any] = lambda item: item,
    wanted: str = "a mapping",
    *,
    or_empty: bool = False,
) -> Mapping[str, Any]:
    """Replace the mapping in ``field`` by a read-only copy, which keeps a frozen value immutable.

    ``or_empty`` allows an empty name.
    """

    def checked(given: object) -> Mapping[str, Any]:
        if given is NOTHING:
            return NOTHING
        items = dict(given)  # type: ignore[call-overload]  # dict() raises for other types
        names = (name if or_empty and name == "" else _name(name) for name in items)
        return MappingProxyType(dict(zip(names, map(convert, items.values()), strict=True)))

    return _normalise(value, field, checked, wanted)


def kinds(value: Struct, field: str) -> None:
    """Check that ``field`` maps names to kinds of nodes."""
    frozen_mapping(value, field, _name, "a mapping from names to kinds")


def mapped(value: Struct, field: str, kind: type[object]) -> Mapping[str, Any]:
    """Check that ``field`` maps names, possibly empty, to values of ``kind``."""
    return frozen_mapping(
        value, field, instance_of(kind), f"a mapping from names to {kind.__name__} values", or_empty=True
    )


def positive(value: Struct, field: str) -> None:
    """Check that ``field`` maps names to finite numbers above 0; the error names the first bad entry."""
    for name, given in frozen_mapping(value, field, wanted="a mapping from names to numbers above 0").items():
        try:
            fine = _number(given) > 0.0
        except (OverflowError, TypeError, ValueError):
            fine = False
        if not fine:
            reject(value, field, f"'{name}' must be a finite number above 0, not {_show(given)}")
    frozen_mapping(value, field, _number)


def instance(value: Struct, field: str, kind: type | UnionType) -> None:
    """Check that ``field`` is a value of ``kind``, which may be ``KIND | None``."""
    given = getattr(value, field)
    if not isinstance(given, kind):
        name = (kind if isinstance(kind, type) else get_args(kind)[0]).__name__
        reject(value, field, f"must be a {name}, not {_show(given)}")


def instances(value: Struct, field: str, kind: type[T]) -> tuple[T, ...]:
    """Check that ``field`` is a sequence of values of ``kind``; store it as a tuple."""
    given = getattr(value, field)
    if type(given) is tuple and set(map(type, given)) <= {kind}:  # a single check: there may be thousands
        return given
    return sequence(value, field, instance_of(kind), f"a list of {kind.__name__} values")


def instance_of(kind: type[T]) -> Callable[[object], T]:
    """Return a function that returns a value of ``kind`` unchanged and raises for any other."""

    def checked(given: object) -> T:
        if isinstance(given, kind):
            return given
        raise TypeError

    return checked


def choice(value: Struct, field: str, kind: type[StrEnum]) -> None:
    """Check that ``field`` is a member of ``kind`` or its text."""
    if type(getattr(value, field)) is kind:
        return
    _normalise(value, field, kind, f"one of {', '.join(kind)}")
