"""The page on rounds: every column, figure, policy, end and option is listed."""

from __future__ import annotations

import re
from pathlib import Path

from bftrain import rounds
from bftrain.cli.settings import option_of
from bftrain.registry import BUILT_IN
from bftrain_replay.commands.rounds import OPTIONS
from bftrain_replay.rounds import round_engine, round_inputs
from tests.helpers.round_cases import gang

PAGE = (Path(__file__).parents[3] / "docs" / "rounds.md").read_text()
WORDS = set(re.findall(r"`([\w-]+)`", PAGE))


def test_every_column_of_every_table_is_documented() -> None:
    result = rounds({"v100": 1}, [gang("a", 10.0)])
    tables = {"tasks": result.tasks_table, "rounds": result.rounds_table, "over_time": result.over_time_table}
    for name, table in tables.items():
        assert f"**{name}**" in PAGE
        assert set(table) <= WORDS, name


def test_every_policy_option_and_end_is_documented() -> None:
    assert set(BUILT_IN["rounds"]) <= WORDS
    assert {option_of(name) for name in OPTIONS} <= set(re.findall(r"(--[a-z-]+)", PAGE))
    ends = {value for name, value in vars(round_engine).items() if name.isupper() and isinstance(value, str)}
    assert {round_engine.STALLED, round_engine.OVERLOAD} <= ends <= WORDS | {"boundary"}


def test_every_policy_was_measured_on_gavels_trace() -> None:
    table = PAGE.split("## Two published cases\n")[1]
    assert set(re.findall(r"^\| `([\w-]+)` \| [\d,]+ ", table, re.MULTILINE)) == {
        *BUILT_IN["rounds"],
        *BUILT_IN["sharing"],
    }


def test_what_a_policy_is_shown_is_there() -> None:
    found = re.search(r"columns with one number a task \((.*?)\), some by kind\s\((.*?)\)", PAGE, re.DOTALL)
    assert found is not None
    columns = set(re.findall(r"`(\w+)`", found[0]))
    assert len(columns) == 9
    assert columns <= set(vars(round_inputs.CompetingTasks))
