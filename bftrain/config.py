"""Settings of the decision core, shares files, and their TOML form; errors name the line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar

import msgspec

from bftrain import toml_io
from bftrain.errors import BadConfig, BadInput, BadValue, UsageError, suggestion
from bftrain.values import checks, options, wire
from bftrain.values.options import AUTO, Option
from bftrain.values.sharing import Entity
from bftrain.values.wire import Mapped

S = TypeVar("S", bound=msgspec.Struct)

_LONGEST_ROUND_S: Final = 86_400.0
REPLAY: Final = "replay"  # the table with the settings that only replays have; the core skips it


class Settings(Mapped, frozen=True, kw_only=True):
    """Settings of decisions. The same settings and events always lead to the same decisions.

    ``entities`` are the users with a weight or a quota; other users have weight 1.
    ``prices`` are node prices by kind (default: 1). A shares file sets both (docs/reference/objectives.md). ``racks``
    are the node sets of racks; ``*`` is the number of trailing numbers in node names that do not belong to the rack.
    """

    solver: Annotated[str, Option("Solver that decides the sizes")] = "exact"
    fallback: Annotated[
        str, Option('Solver used if the first one fails or is late; "": none', may_be_empty=True, rare=True)
    ] = "greedy"
    objective: Annotated[str, Option("Objective of decisions: a name, or FILE.py:FUNCTION")] = "throughput"
    admission: Annotated[str, Option("Rule for the tasks that compete")] = "first-come"
    placement: Annotated[
        str,
        Option("Rule for the choice of nodes; auto: neighbours; with racks: consolidated; by published rules: grouped"),
    ] = AUTO
    horizon_s: Annotated[
        float | str,
        Option(
            "Seconds ahead for which speed counts; auto: fitted to costs and to the stay of nodes", word=AUTO, above=0.0
        ),
    ] = AUTO
    turn_s: Annotated[
        float, Option("Fair objectives: seconds of a turn; twice a start's cost is added", at_least=0.0, rare=True)
    ] = 20.0
    max_tasks: Annotated[int, Option("Maximum number of competing tasks", at_least=1)] = 35
    solver_deadline_s: Annotated[float, Option("Solver timeout in seconds", above=0.0, rare=True)] = 10.0
    solver_gap: Annotated[float, Option("Relative gap that lets a solver stop", at_least=0.0, rare=True)] = 0.0
    solver_threads: Annotated[int, Option("Threads per solver", at_least=1, rare=True)] = 1
    max_failures: Annotated[int, Option("Failures before a task is given up", at_least=1, rare=True)] = 3
    entities: Mapping[str, Entity] = msgspec.field(default_factory=dict)
    prices: Mapping[str, float] = msgspec.field(default_factory=dict)
    racks: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        options.check(self)
        checks.mapped(self, "entities", Entity)
        checks.positive(self, "prices")
        checks.mapped(self, "racks", str)


class LiveSettings(Settings, frozen=True, kw_only=True):
    """Settings of the decisions of a live run: by a solver after each event, or by a policy at the start of rounds."""

    policy: Annotated[
        str, Option("Policy of rounds that chooses the tasks of each round, instead of a solver", default="none")
    ] = ""
    round_s: Annotated[float, Option("With a policy: length of a round in seconds", at_least=1.0)] = 360.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.round_s > _LONGEST_ROUND_S:
            checks.reject(self, "round_s", f"must not be above a day, {_LONGEST_ROUND_S:g}")


def recorded_settings(text: bytes | str, where: str) -> Settings:
    """Decode the settings of a journal. Versions without ``turn_s`` decided with a value of 0."""
    names = wire.decode(text, dict[str, object], where=where)
    settings = wire.decode(text, LiveSettings if "policy" in names else Settings, where=where)
    return settings if "turn_s" in names else msgspec.structs.replace(settings, turn_s=0.0)


def merged(path: Path | None, given: Mapping[str, object], kind: type[S]) -> S:
    """Return the settings of a configuration file, overridden by the options in ``given`` that are not ``None``."""
    settings = load(path, kind) if path else kind()
    changes = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(settings, **changes)


def changed(settings: S, given: Mapping[str, object], caller: str) -> S:
    """Return the settings with those in ``given``, the keyword arguments of ``caller``; raise for unknown names."""
    for name in given:
        if name not in settings.__struct_fields__:
            fix = suggestion(name, settings.__struct_fields__)
            raise UsageError(f"there is no setting '{name}'", where=caller, fix=fix)
    return msgspec.structs.replace(settings, **given)


def load(path: Path, kind: type[S]) -> S:
    """Read ``kind`` from a TOML file; decisions ignore the settings of a replay in it."""
    text = read(path)
    data = toml_io.parse(text, str(path))
    if issubclass(kind, Settings):
        only_replays = data.pop(REPLAY, {})
        if not isinstance(only_replays, dict):
            what = f"{REPLAY} must be a table, not {only_replays!r:.60}"
            raise BadConfig(what, where=_place(str(path), text, (REPLAY,)), fix=f"write [{REPLAY}]")
        if kind is not Settings:
            data |= only_replays
    return from_mapping(data, kind, where=str(path), text=text)


def read(path: Path) -> str:
    """Read a text file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"cannot be read: {error}", where=str(path)) from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read the settings of a TOML file, unchecked."""
    return toml_io.parse(read(path), str(path))


def from_mapping(
    data: Mapping[str, object],
    kind: type[S],
    *,
    where: str,
    text: str = "",
    table: str = "",
    beside: Collection[str] = (),
) -> S:
    """Convert parsed TOML to ``kind``. Line numbers in errors come from the source ``text`` with ``data`` in ``table``.

    ``beside`` contains further keys of the same table that were removed from ``data``.
    """
    above = (table,) if table else ()
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for key in data:
        if key not in known:
            fix = suggestion(key, {*known, *beside})
            raise BadConfig(f"unknown key '{key}'", where=_place(where, text, (*above, key)), fix=fix)
    try:
        return wire.convert(data, kind)
    except BadInput as error:
        culprits = [key for key in data if re.search(rf"(^|[`.]){key}\b", error.what)]
        raise BadConfig(error.what, where=_place(where, text, (*above, *culprits[:1]))) from error


def dump(settings: msgspec.Struct) -> str:
    """Return settings as TOML, without ``None`` values and empty tables; settings of replays have their own table."""
    plain = wire.plain(settings)
    if isinstance(settings, Settings):
        only_replays = {name: plain.pop(name) for name in plain.keys() - {*Settings.__struct_fields__}}
        plain[REPLAY] = {name: only_replays[name] for name in settings.__struct_fields__ if name in only_replays}
    return toml_io.table(plain)


def _place(where: str, text: str, path: tuple[str, ...]) -> str:
    """Return ``where`` with the line that sets ``path``, which may also be a setting of replays in their own table."""
    line = line_of(text, path) or (line_of(text, (REPLAY, *path)) if path else 0)
    return f"{where}:{line}" if line else where


def line_of(text: str, path: tuple[str | int, ...]) -> int:
    """Return the line that sets ``path``, or its longest prefix with a line; 0 if not found.

    A whole number in a path is the index of a table among several of the same name.
    """
    best, most = 0, 0
    table: tuple[str | int, ...] = ()
    counts: Counter[tuple[str | int, ...]] = Counter()  # tables of the same name
    for number, line in enumerate(text.splitlines(), start=1):
        keys = _keys_in(line) or _keys_in(f"{line.partition('=')[0]}= 0")  # a value over several lines
        if line.lstrip().startswith("["):
            table = max(keys, key=len, default=())
            keys = [table[:length] for length in range(1, len(table) + 1)]
            if line.lstrip().startswith("[["):
                counts[table] += 1
                table = (*table, counts[table] - 1)
                keys.append(table)
        else:
            keys = [(*table, *key) for key in keys]
        for key in keys:
            if most < len(key) <= len(path) and path[: len(key)] == key:
                best, most = number, len(key)
    return best


def _keys_in(line: str) -> list[tuple[str | int, ...]]:
    try:
        return list(_keys(toml_io.parse(line, "")))
    except BadConfig:
        return []


def _keys(table: Mapping[str, object], path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    for key, value in table.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from _keys(value, (*path, key))


_FIXES: Final[Mapping[str, str]] = {
    "entities": 'write NAME = 2, or NAME = { weight = 2, inside = "fifo", nodes = 16, tasks = 4 }',
    "prices": "write KIND = 2.5",
}


def load_shares(path: Path) -> dict[str, Any]:
    """Read the settings of a shares file, the tables ``entities`` and ``prices``; omit a missing table.

    A user's value may be a number, which is the weight.
    """
    text = read(path)
    source = _SharesSource(str(path), text)
    data = toml_io.parse(text, str(path))
    source.check_keys((), data, _FIXES)
    entities = {name: _entity(source, name, given) for name, given in source.table(data, "entities").items()}
    prices = source.table(data, "prices")
    for kind, price in prices.items():
        try:
            Settings(prices={kind: price})
        except BadValue:
            what = f"must be a number above 0, not {price!r:.60}" if kind else "a kind must have a name"
            source.refuse(("prices", kind), what)
    return {name: table for name, table in (("entities", entities), ("prices", prices)) if table}


class _SharesSource(msgspec.Struct, frozen=True):
    path: str
    text: str

    def table(self, data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        found = data.get(name, {})
        if not isinstance(found, dict):
            self.refuse((name,), f"must be a table, not {found!r:.60}")
        return found

    def check_keys(self, keys: tuple[str, ...], data: Collection[str], known: Collection[str]) -> None:
        for key in data:
            if key not in known:
                where = ": ".join([_place(self.path, self.text, (*keys, key)), *([".".join(keys)] if keys else [])])
                raise BadConfig(f"unknown key '{key}'", where=where, fix=suggestion(key, known))

    def refuse(self, keys: tuple[str, ...], what: str) -> NoReturn:
        raise BadConfig(what, where=f"{_place(self.path, self.text, keys)}: {'.'.join(keys)}", fix=_FIXES[keys[0]])


def _entity(source: _SharesSource, name: str, given: object) -> Entity:
    keys = ("entities", name)
    if isinstance(given, dict):
        source.check_keys(keys, given, Entity.__struct_fields__)
        parts = given
    elif isinstance(given, int | float) and not isinstance(given, bool):
        parts = {"weight": given}
    else:
        source.refuse(keys, f"must be a weight or a table, not {given!r:.60}")
    try:
        return Entity(**parts)
    except BadValue as error:
        part = (error.where or "").removeprefix(f"{Entity.__name__}.")
        source.refuse((*keys, part) if isinstance(given, dict) else keys, error.what)
