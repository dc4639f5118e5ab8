"""Shares of a policy of one's own that cannot be carried out are refused, with the policy, the task and what to do."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from bftrain import BrokenPlugin, SharingProblem, SharingTask, share
from bftrain.assembly import shares_of
from bftrain.values.sharing import PairShare, Shares

KINDS = ("v", "k")
TASKS = tuple(
    SharingTask(name=name, speeds=dict.fromkeys(KINDS, 1.0), nodes=nodes) for name, nodes in (("a", 1), ("b", 2))
)
PROBLEM = SharingProblem(nodes={"v": 2, "k": 1}, tasks=TASKS)
GOOD: dict[str, Any] = {"shares": {"a": {"v": 0.5, "k": 0.5}, "b": {"v": 0.5}}, "speeds": {"a": 1.0, "b": 0.5}}


class Own:
    """Gives what the test says."""

    name = "own"

    def __init__(self, given: object) -> None:
        self._given = given

    def share(self, problem: SharingProblem) -> Shares:
        del problem
        return self._given  # type: ignore[return-value]  # that is what is tested


def given(**more: object) -> Shares:
    return Shares(policy="own", value=1.0, value_is="s", **(GOOD | more))  # type: ignore[arg-type]  # fields of it


def test_shares_that_can_be_carried_out_are_taken() -> None:
    assert shares_of(Own(given()), PROBLEM).shares == GOOD["shares"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "gave NoneType .return bftrain.values.sharing.Shares"),
        ({"a": {}}, "gave dict "),
        (given(shares={"b": {}}), "gave shares in which task 'a' is missing .give one entry to each of the 2 tasks"),
        (given(speeds=GOOD["speeds"] | {"c": 1.0}), "gave speeds in which task 'c' is unknown"),
        (given(speeds={"a": nan, "b": 0.0}), "gave task 'a' the speed nan"),
        (given(shares={"a": {"v": nan}, "b": {}}), "gave 'a' the share nan of 'v' .give finite numbers of at least 0"),
        (given(shares={"a": {"v": -1.0}, "b": {}}), "gave 'a' the share -1.0 of 'v'"),
        (given(shares={"a": {"x": 0.1}, "b": {}}), "gave 'a' a share of 'x' .the kinds are 'v', 'k'"),
        (given(shares={"a": {"v": 0.6, "k": 0.6}, "b": {}}), "gave 'a' 1.2 times all of its time"),
        (given(shares={"a": {"v": 0.5}, "b": {"v": 1.0}}), "gave out 2.5 nodes of 'v', and there are 2"),
        (given(pairs=(PairShare(tasks=("a", "b"), shares={}),)), "let 'a' and 'b' share nodes"),
        (given(pairs=(PairShare(tasks=("a", "a"), shares={}),)), "let 'a' and 'a' share nodes"),
        (given(pairs=(PairShare(tasks=("a", "c"), shares={}),)), "let 'a' and 'c' share nodes"),
    ],
)
def test_what_is_refused(found: object, words: str) -> None:
    with pytest.raises(BrokenPlugin, match=f"policy 'own': {words}"):
        share(PROBLEM, Own(found))
    with pytest.raises(BrokenPlugin, match="policy 'own', round 3 at 9 s: "):
        shares_of(Own(found), PROBLEM, ", round 3 at 9 s")
