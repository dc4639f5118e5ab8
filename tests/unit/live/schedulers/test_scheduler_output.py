"""What schedulers print is read as in the case files tests/cases/schedulers/*.toml."""

from __future__ import annotations

import asyncio
import re
import tomllib
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest

from bftrain import NotAvailable
from bftrain.live.schedulers.backend import length_s
from tests.helpers.schedulers import CommandFailed, PilotState, Said, Trouble, failed, of_flux, of_pbs, of_slurm

MAKE: Final[dict[str, Any]] = {"slurm": of_slurm, "pbs": of_pbs, "flux": of_flux}
FILES: Final = Path(__file__).parents[3] / "cases" / "schedulers"
TABLES: Final[dict[str, Any]] = {name: tomllib.loads((FILES / f"{name}.toml").read_text()) for name in MAKE}
CASES: Final = [(name, case) for name, table in TABLES.items() for case in table["case"]]


def says(scheduler: str, case: dict[str, Any]) -> Said:
    texts = dict(TABLES[scheduler]["bases"].get(case.get("base", ""), {}))
    for old, new in case.get("change", ()):
        assert any(old in text for text in texts.values()), old
        texts = {command: text.replace(old, new) for command, text in texts.items()}
    # The most specific command comes first
    whole = {**texts, **case.get("says", {})}
    return Said(**{command: whole[command].removeprefix("\n") for command in sorted(whole, key=len, reverse=True)})


def plain(found: Any) -> Any:  # noqa: ANN401 - as backends return it
    """Return an answer as case files have it."""
    if isinstance(found, dict):
        return found
    if hasattr(found, "longest_s"):
        return {name: getattr(found, name) for name in found.__struct_fields__} | {"nodes": sorted(found.nodes)}
    if any(hasattr(one, "mark") for one in found):
        number = "{0:.15g}".format
        times = [[None if at is None else number(at) for at in (one.start_s, one.end_s)] for one in found]
        rows = zip(found, times, strict=True)
        return [f"{one.id} {one.state.name.lower()} {one.node} {start} {end}" for one, (start, end) in rows]
    return sorted(found) if isinstance(found, frozenset) else list(found)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-12:00:00", 129_600.0), ("90:00", 5400.0), ("30", 30.0)]
    + [(text, inf) for text in ("UNLIMITED", "-1", "nan", "inf", "0", "00:00:00", "None")],
)
def test_time_limits_are_read(text: str, seconds: float) -> None:
    assert length_s(text) == seconds


@pytest.mark.parametrize(
    ("scheduler", "case"), CASES, ids=lambda value: value if isinstance(value, str) else value["name"]
)
def test_output_is_read(scheduler: str, case: dict[str, Any]) -> None:
    batch: Any = MAKE[scheduler](**case.get("settings", {}))
    said, call = says(scheduler, case), case["call"]
    if "before" in case:
        asyncio.run(getattr(batch, case["before"])(said))
    asking = getattr(batch, call)(said, *case.get("args", ["bftrain-t"] if call in {"pilots", "plans"} else ()))
    if "refused" in case or "unreadable" in case:
        with pytest.raises(NotAvailable, match=re.escape(case.get("refused") or case["unreadable"])) as error:
            raise asyncio.run(asking).problems[0]  # of several problems, the first
        assert isinstance(error.value, CommandFailed) is ("unreadable" in case), "a failure that passes is none"
        return
    found = plain(asyncio.run(asking))
    match case:
        case {"pilots": rows} | {"names": rows} | {"plans": rows}:
            assert found == rows
        case {"limits": limits}:
            remarks = limits.get("remarks")
            assert {name: found[name] for name in limits if name != "remarks"} == {
                name: value for name, value in limits.items() if name != "remarks"
            }
            if remarks is not None:
                assert len(found["remarks"]) == len(remarks), found["remarks"]
                assert all(words in text for words, text in zip(remarks, found["remarks"], strict=True))


@pytest.mark.parametrize("scheduler", ["pbs", "flux"])
def test_states_of_jobs_are_understood(scheduler: str) -> None:
    for state, texts in TABLES[scheduler]["states"].items():
        for text in texts:
            said = says(scheduler, {"base": "state", "change": [["STATE", text]]})
            batch: Any = MAKE[scheduler]()
            assert [one.state for one in asyncio.run(batch.pilots(said, "bftrain-t"))] == [PilotState[state.upper()]]


@pytest.mark.parametrize("scheduler", ["pbs", "flux"])
def test_nonsense_is_not_taken_for_no_pilots(scheduler: str) -> None:
    for command, texts in TABLES[scheduler]["nonsense"].items():
        for text in texts:
            batch: Any = MAKE[scheduler]()
            with pytest.raises(CommandFailed, match="cannot be read"):
                asyncio.run(batch.pilots(says(scheduler, {"base": "state", "says": {command: text}}), "bftrain-t"))


@pytest.mark.parametrize("scheduler", MAKE)
def test_the_message_of_a_failed_command_decides_what_follows(scheduler: str) -> None:
    batch: Any = MAKE[scheduler]()
    for trouble, messages in TABLES[scheduler]["troubles"].items():
        for message in messages:
            assert batch.trouble(failed(message)) is Trouble(trouble), message
