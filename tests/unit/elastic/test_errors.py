"""Errors of the training side: whole after pickling, and raised for impossible options of an agent."""

from __future__ import annotations

import pickle

import pytest

from bftrain_elastic import errors
from bftrain_elastic.agent.agent_settings import command_line

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ElasticError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_pickling(kind: type[errors.ElasticError]) -> None:
    error = kind("is wrong", where="job.py:3", fix="mend it")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is kind
    assert (again.what, again.where, again.fix) == ("is wrong", "job.py:3", "mend it")


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--copies", "-1", "--copies: must be at least 0"),
        ("--copies", "inf", "--copies: must be at least 0"),
        ("--copies", "nan%", "--copies: must be at least 0"),
        ("--log-limit", "0.5", "--log-limit: must be at least 1"),
        ("--log-limit", "inf", "--log-limit: must be at least 1"),
    ],
)
def test_an_impossible_limit_of_an_agent_is_an_error(option: str, value: str, problem: str) -> None:
    with pytest.raises(errors.ElasticError, match=problem):
        command_line("").parse_args(["--manager", "localhost:1", option, value])
