"""The ledger: it adds up, or it says so."""

from __future__ import annotations

import pytest

from bftrain.errors import Fault
from bftrain_replay.accounting.node_time_ledger import PLAIN, Ledger, UnusedReason, idle_node_s
from tests.unit.replay.cases import log_of

LOG = log_of((0.0, "ab", ""), (100.0, "", "b"), end_s=300.0)


def kept(*, until_s: float = 300.0) -> Ledger:
    ledger = Ledger()
    ledger.open(0.0, 2, 1, {UnusedReason.NOT_WORTH: 1})
    ledger.open(100.0, 1, 1, {})
    ledger.close(until_s)
    return ledger


def test_sums_by_reason() -> None:
    ledger = kept()
    assert (ledger.idle_node_s, ledger.used_node_s) == (400.0, 300.0)
    assert ledger.unused_node_s == dict.fromkeys(PLAIN, 0.0) | {UnusedReason.NOT_WORTH: 100.0}
    ledger.check(LOG, [250.0, 50.0])


def test_a_part_of_the_log_adds_up_as_well() -> None:
    assert idle_node_s(LOG, 50.0) == 100.0
    assert idle_node_s(LOG, 150.0) == 250.0
    kept(until_s=150.0).check(LOG, [150.0])


def test_nodes_that_do_not_add_up_are_a_fault() -> None:
    with pytest.raises(Fault, match="do not make 3"):
        Ledger().open(0.0, 3, 1, {UnusedReason.NO_TASK: 1})


def test_time_that_is_missing_is_a_fault() -> None:
    ledger = Ledger()
    ledger.open(1.0, 2, 2, {})  # the first second is not in the book
    ledger.open(100.0, 1, 1, {})
    ledger.close(300.0)
    with pytest.raises(Fault, match=r"used and unused node-seconds are 398\.0, but the log's idle time is 400\.0"):
        ledger.check(LOG, [398.0])


def test_tasks_that_held_something_else_are_a_fault() -> None:
    with pytest.raises(Fault, match=r"node-seconds of the tasks are 299\.0, but those used is 300\.0"):
        kept().check(LOG, [299.0])


def test_an_open_ledger_has_no_sums() -> None:
    ledger = Ledger()
    ledger.open(0.0, 0, 0, {})
    with pytest.raises(Fault, match="still open"):
        _ = ledger.used_node_s
