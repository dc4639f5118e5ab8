"""Rules a field must keep, checked when a value is born; every failure names the field.

The checks also normalise: a numpy integer becomes an ``int``, a list becomes a ``tuple``, an ``int`` given for
seconds becomes a ``float``. So a value is the same whether it was typed, computed or read from JSON.
"""

from __future__ import annotations

import math
from collections import Counter
from enum import StrEnum
from operator import index
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from msgspec.structs import force_setattr

from bftrain.errors import BadValue, near
from bftrain.values.wire import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from msgspec import Struct

T = TypeVar("T")

_SHOWN_LENGTH: Final = 60
_LARGEST_INTEGER: Final = 2**63 - 1  # what JSON readers, SQLite and numpy hold


def reject(value: Struct, field: str, problem: str, fix: str | None = None) -> NoReturn:
    """Raise the error for ``field`` of ``value``."""
    raise BadValue(problem, where=f"{type(value).__name__}.{field}", fix=fix)


def instead_of_seconds(value: Struct, field: str, word: str) -> None:
    """Check that a text in place of seconds is ``word``, in large or small letters."""
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
    number = index(given)  # type: ignore[arg-type]  # index() itself refuses what is no integer
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
        number = float(given)  # type: ignore[arg-type]  # float() itself refuses what is no number
    if not math.isfinite(number):
        raise ValueError
    return number


def _plain_text(given: object) -> str:
    if type(given) is str:
        return given
    if isinstance(given, str):  # numpy's text and enumerations have no JSON form of their own
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
    """Say whether all are names already: one look instead of one a name, for they come by the thousand."""
    return set(map(type, given)) <= {str} and "" not in given


def _counted(given: object) -> Mapping[str, int]:
    items = dict(given)  # type: ignore[call-overload]  # dict() itself refuses what is no mapping
    plain = set(map(type, items.values())) <= {int} and _all_names(items)
    if plain and (not items or 0 <= min(items.values()) <= max(items.values()) <= _LARGEST_INTEGER):
        return MappingProxyType(items)
    return MappingProxyType({_name(name): _count(item) for name, item in items.items()})


def _tuple(given: object, convert: Callable[[object], T]) -> tuple[T, ...]:
    if isinstance(given, (str, bytes)):
        raise TypeError
    return tuple(convert(item) for item in given)  # type: ignore[attr-defined]  # TypeError if it does not iterate


def integer(value: Struct, *fields: str, at_least: int) -> int:
    """Hold each of ``fields`` to a whole number not below ``at_least``; gives the last one."""
    number = at_least
    for field in fields:
        number = _normalise(value, field, _integer, "a whole number")
        if number < at_least:
            reject(value, field, f"must be at least {at_least}, not {number}")
    return number


def bounds(value: Struct) -> None:
    """Hold ``min_nodes`` and ``max_nodes`` to whole numbers above 0 that do not fall."""
    smallest = integer(value, "min_nodes", at_least=1)
    largest = integer(value, "max_nodes", at_least=1)
    if largest < smallest:
        reject(value, "max_nodes", f"is {largest}, below min_nodes = {smallest}")


def number(value: Struct, *fields: str, at_least: float | None = None, above: float | None = None) -> float:
    """Hold each of ``fields`` to a finite number within its bounds; gives the last one."""
    checked = 0.0
    for field in fields:
        checked = getattr(value, field)
        if type(checked) is not float or not math.isfinite(checked):
            checked = _normalise(value, field, _number, "a finite number")
        if at_least is not None and checked < at_least:
            reject(value, field, f"must be at least {at_least:g}, not {checked:g}")
        if above is not None and checked <= above:
            reject(value, field, f"must be above {above:g}, not {checked:g}")
    return checked


def optional_number(value: Struct, *fields: str, at_least: float | None = None, above: float | None = None) -> None:
    """Like :func:`number`, but ``None`` is fine."""
    for field in fields:
        if getattr(value, field) is not None:
            number(value, field, at_least=at_least, above=above)


def text(value: Struct, *fields: str) -> str:
    """Hold each of ``fields`` to text that is not blank and has no surrounding space; gives the last one."""
    given = ""
    for field in fields:
        given = _normalise(value, field, _plain_text, "text")
        if not given or given != given.strip() or not given.isprintable():
            reject(value, field, f"must be printable text without surrounding space, not {_show(given)}")
    return given


def optional_text(value: Struct, *fields: str) -> None:
    """Like :func:`text`, but an empty one is fine."""
    for field in fields:
        if getattr(value, field) != "":
            text(value, field)


def words(value: Struct, *fields: str) -> None:
    """Hold each of ``fields`` to text of any kind, such as what a program said; what is no Unicode becomes ``?``."""
    for field in fields:
        given = _normalise(value, field, _plain_text, "text")
        if not given.isascii():
            # Undecodable bytes come in as lone surrogates, which no JSON can carry
            force_setattr(value, field, given.encode("utf-8", "replace").decode())


def sequence(value: Struct, field: str, convert: Callable[[object], T], wanted: str) -> tuple[T, ...]:
    """Hold ``field`` to a tuple whose items pass ``convert``."""
    return _normalise(value, field, lambda given: _tuple(given, convert), wanted)


def integers(value: Struct, field: str) -> tuple[int, ...]:
    """Hold ``field`` to a tuple of whole numbers."""
    return sequence(value, field, _integer, "a list of whole numbers")


def numbers(value: Struct, field: str) -> tuple[float, ...]:
    """Hold ``field`` to a tuple of finite numbers."""
    return sequence(value, field, _number, "a list of finite numbers")


def names(value: Struct, field: str) -> tuple[str, ...]:
    """Hold ``field`` to a tuple of different node names: not empty, printable, without any space."""
    found = _normalise(value, field, _names, "a list of names")
    twice = repeated(found)
    if twice is not None:
        reject(value, field, f"names '{twice}' twice")
    together = "".join(found)  # one look at all of them: thousands of nodes may come at once
    if " " in together or not together.isprintable():
        odd = next(name for name in found if " " in name or not name.isprintable())
        reject(value, field, f"must hold names without spaces and control characters, not {_show(odd)}")
    return found


def texts(value: Struct, field: str) -> tuple[str, ...]:
    """Hold ``field`` to a tuple of texts of any kind."""
    return sequence(value, field, _plain_text, "a list of texts")


def repeated(labels: Sequence[str]) -> str | None:
    """Give the first of ``labels`` that comes again, if there is one."""
    if len(set(labels)) == len(labels):  # the usual case, at half the cost of counting
        return None
    return next(label for label, times in Counter(labels).items() if times > 1)


def different(value: Struct, field: str, labels: Sequence[str], fix: str) -> None:
    """Hold ``labels``, the names of the items in ``field``, to being different."""
    twice = repeated(labels)
    if twice is not None:
        reject(value, field, f"uses the name '{twice}' twice", fix)


def counts(value: Struct, field: str) -> Mapping[str, int]:
    """Hold ``field`` to a mapping from names to whole numbers that are not negative."""
    return _normalise(value, field, _counted, "a mapping from names to whole numbers of at least 0")


def pools(value: Struct, field: str) -> Mapping[str, int]:
    """Hold ``field`` to how many nodes there are of each kind; those of no kind stand under the empty name."""
    wanted = "a mapping from kinds to whole numbers of at least 0"
    return frozen_mapping(value, field, _count, wanted, or_empty=True)


def holdings(value: Struct, field: str) -> Mapping[str, tuple[str, ...]]:
    """Hold ``field`` to a mapping from names to lists of names."""
    return frozen_mapping(value, field, _names, "a mapping from names to lists of names")


def frozen_mapping(
    value: Struct,
    field: str,
    convert: Callable[[Any], Any] = lambda item: item,
    wanted: str = "a mapping",
    *,
    or_empty: bool = False,
) -> Mapping[str, Any]:
    """Replace the mapping in ``field`` by a read-only copy, so that a frozen value cannot change inside.

    With ``or_empty`` a name may be empty.
    """

    def checked(given: object) -> Mapping[str, Any]:
        items = dict(given)  # type: ignore[call-overload]  # dict() itself refuses what is no mapping
        names = (name if or_empty and name == "" else _name(name) for name in items)
        return MappingProxyType(dict(zip(names, map(convert, items.values()), strict=True)))

    return _normalise(value, field, checked, wanted)


def kinds(value: Struct, field: str) -> None:
    """Hold ``field`` to a mapping from names to kinds of nodes."""
    if getattr(value, field) is not NOTHING:
        frozen_mapping(value, field, _name, "a mapping from names to kinds")


def mapped(value: Struct, field: str, kind: type[object]) -> Mapping[str, Any]:
    """Hold ``field`` to a mapping from names to values of ``kind``; the empty name is one too."""
    given: Mapping[str, Any] = getattr(value, field)
    if given is NOTHING:
        return given
    wanted = f"a mapping from names to {kind.__name__} values"
    return frozen_mapping(value, field, instance_of(kind), wanted, or_empty=True)


def positive(value: Struct, field: str) -> None:
    """Hold ``field`` to a mapping from names to finite numbers above 0; an error names the first that is not."""
    if getattr(value, field) is NOTHING:
        return
    for name, given in frozen_mapping(value, field, wanted="a mapping from names to numbers above 0").items():
        try:
            fine = _number(given) > 0.0
        except (OverflowError, TypeError, ValueError):
            fine = False
        if not fine:
            reject(value, field, f"'{name}' must be a finite number above 0, not {_show(given)}")
    frozen_mapping(value, field, _number)


def instance(value: Struct, field: str, kind: type) -> None:
    """Hold ``field`` to a value of ``kind``."""
    given = getattr(value, field)
    if not isinstance(given, kind):
        reject(value, field, f"must be a {kind.__name__}, not {_show(given)}")


def instances(value: Struct, field: str, kind: type[T]) -> tuple[T, ...]:
    """Hold ``field`` to a tuple of values of ``kind``."""
    given = getattr(value, field)
    if type(given) is tuple and set(map(type, given)) <= {kind}:  # one look at all of them: there may be thousands
        return given
    return sequence(value, field, instance_of(kind), f"a list of {kind.__name__} values")


def instance_of(kind: type[T]) -> Callable[[object], T]:
    """Return what gives back a value of ``kind``, and refuses others."""

    def checked(given: object) -> T:
        if isinstance(given, kind):
            return given
        raise TypeError

    return checked


def choice(value: Struct, field: str, kind: type[StrEnum]) -> None:
    """Hold ``field`` to a member of ``kind``; its plain text is fine too."""
    if type(getattr(value, field)) is kind:
        return
    _normalise(value, field, kind, f"one of {', '.join(kind)}")
