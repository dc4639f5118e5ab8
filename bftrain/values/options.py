"""Options: how a field of a settings struct is explained, checked, and typed on the command line.

A field is declared as ``Annotated[float, Option("Seconds between decisions", at_least=0.0)] = 0.0``. The checks, the
command-line option with its help text, and the keys of a configuration file derive from this declaration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple, get_args, get_type_hints

import msgspec

from bftrain.values import checks

AUTO: Final = "auto"  # value of a setting with a default computed from other settings
HORIZON_S: Final = 120.0  # horizon for fitted costs
_A_DAY_S: Final = 86_400.0


class Option(NamedTuple):
    """``help`` is a sentence without full stop; ``default`` replaces a default that does not explain itself.

    ``word`` is the text that may replace a number of seconds, ``choices`` are all texts allowed. A ``rare`` setting
    has no option of its own: ``--set NAME=VALUE`` or the configuration file sets it.
    """

    help: str
    default: str = ""
    choices: Sequence[str] = ()
    word: str = ""
    may_be_empty: bool = False  # allows empty text although the default is not empty
    free: bool = False  # checked by the struct itself
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    rare: bool = False


class Setting(NamedTuple):
    """A field with an option: ``types`` are the types of its values, excluding ``None``."""

    name: str
    types: frozenset[type]
    default: object
    option: Option

    @property
    def text(self) -> str:
        """The help text with the default."""
        default = self.option.default or _in_words(self.name, self.default)
        return f"{self.option.help} [{default}]." if default else f"{self.option.help}."


def _in_words(name: str, default: object) -> str:
    if not isinstance(default, int | float):
        return str(default or "")
    whole_days = name.endswith("_s") and default >= _A_DAY_S
    return f"{default / _A_DAY_S:g} days" if whole_days else f"{default:g}"


@cache
def settings_of(kind: type[msgspec.Struct]) -> Mapping[str, Setting]:
    """Return the fields of ``kind`` with options, by name, inherited fields first."""
    hints = get_type_hints(kind, include_extras=True)
    settings = {}
    for field in msgspec.structs.fields(kind):
        shape, *extras = get_args(hints[field.name]) or (None,)
        option = next((extra for extra in extras if isinstance(extra, Option)), None)
        if option is not None:
            types = frozenset(get_args(shape) or (shape,)) - {type(None)}
            settings[field.name] = Setting(field.name, types, field.default, option)
    return settings


def own_settings(kind: type[msgspec.Struct]) -> Mapping[str, Setting]:
    """Return the settings that ``kind`` itself declares."""
    return {name: setting for name, setting in settings_of(kind).items() if name in vars(kind)["__annotations__"]}


def check(value: msgspec.Struct) -> None:
    """Check and normalise every field that has an option; fields that default to ``None`` or "" may stay so."""
    for name, setting in settings_of(type(value)).items():
        given, option = getattr(value, name), setting.option
        if option.free or (given is None and setting.default is None):
            continue
        if option.word and isinstance(given, str):
            checks.instead_of_seconds(value, name, option.word)
        elif float in setting.types:
            checks.number(value, name, at_least=option.at_least, above=option.above, at_most=option.at_most)
        elif int in setting.types:
            checks.integer(value, name, at_least=int(option.at_least or 0))
        elif given != "" or (setting.default and not option.may_be_empty):
            checks.one_of(value, name, option.choices) if option.choices else checks.text(value, name)
