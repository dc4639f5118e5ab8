"""The tree of errors: what they say, the exit code they lead to, and that they survive a process boundary."""

from __future__ import annotations

import copy
import pickle

import pytest

from bftrain import errors
from bftrain.errors import (
    BadConfig,
    BadInput,
    BadObjective,
    BadValue,
    BftrainError,
    BrokenPlugin,
    Fault,
    Interrupted,
    NotAvailable,
    PartlyFailed,
    UnknownName,
    UsageError,
    suggestion,
)

CODES = {
    BftrainError: 5,
    UsageError: 2,
    BadInput: 3,
    BadValue: 3,
    BadConfig: 3,
    BadObjective: 3,
    UnknownName: 3,
    NotAvailable: 4,
    BrokenPlugin: 3,
    PartlyFailed: 1,
    Interrupted: 130,
    Fault: 5,
}


def test_every_error_is_in_the_tree_and_has_its_exit_code() -> None:
    found = {thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, BaseException)}
    assert {kind: kind.exit_code for kind in found} == CODES  # type: ignore[attr-defined]  # each has one


def test_the_tree() -> None:
    assert issubclass(BadValue, (BadInput, ValueError))
    assert [kind.__bases__ for kind in (BadInput, BadConfig, UnknownName)] == [
        (BftrainError,),
        (BadInput,),
        (BadInput,),
    ]
    assert [kind.__bases__ for kind in (NotAvailable, BrokenPlugin, Fault)] == [
        (BftrainError,),
        (NotAvailable,),
        (BftrainError,),
    ]


@pytest.mark.parametrize(
    ("where", "fix", "text"),
    [
        (None, None, "is wrong"),
        ("f.toml:3", None, "f.toml:3: is wrong"),
        (None, "mend it", "is wrong (mend it)"),
        ("f.toml:3", "mend it", "f.toml:3: is wrong (mend it)"),
    ],
)
def test_an_error_says_where_what_and_what_to_do(where: str | None, fix: str | None, text: str) -> None:
    error = BadInput("is wrong", where=where, fix=fix)
    assert str(error) == text
    assert (error.what, error.where, error.fix) == ("is wrong", where, fix)


@pytest.mark.parametrize("kind", CODES)
def test_errors_survive_pickling_and_copying(kind: type[BftrainError]) -> None:
    error = kind("is wrong", where="here", fix="mend it")
    for again in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):  # noqa: S301 - our own bytes
        assert type(again) is kind
        assert (again.what, again.where, again.fix) == ("is wrong", "here", "mend it")
        assert str(again) == str(error)


def test_the_nearest_name_is_suggested_else_all_are_listed() -> None:
    known = ["highs", "exact", "greedy"]
    assert suggestion("exakt", known) == "did you mean 'exact'?"
    assert suggestion("zzz", known) == "known: exact, greedy, highs"
    assert suggestion("zzz", []) == "known: none"


def test_an_unknown_name_says_of_what_kind_it_is() -> None:
    error = UnknownName.among("solver", "exakt", ["exact"], where="a.toml:2")
    assert str(error) == "a.toml:2: no solver is called 'exakt' (did you mean 'exact'?)"
    assert isinstance(error, UnknownName)
