"""How long nodes stay is learned from the past alone, and costs count by it as they should."""

from __future__ import annotations

import pytest

from bftrain import BadValue, Settings, build_harvester
from bftrain.values import wire
from tests.unit.core.samples import joined, left, spec, submitted


def test_a_harvester_learns_from_what_leaves_and_restarts_where_it_was() -> None:
    first = build_harvester(Settings())
    first.handle(joined(0.0, "n1", "n2", "n3"), submitted(0.0, spec("a", 1, 3)))
    first.handle(left(50.0, "n2", "elsewhere"))
    stay = first.snapshot.node_stay
    assert stay.departures == pytest.approx(5.0, abs=0.01)
    assert stay.idle_node_s == pytest.approx(3600.0 + 150.0, rel=0.001)
    again = build_harvester(Settings())
    again.restore(wire.decode(wire.encode(first.snapshot), type(first.snapshot)))
    assert again.snapshot == first.snapshot


def test_a_start_that_takes_as_long_as_a_fixed_horizon_never_pays_and_with_auto_it_does() -> None:
    for horizon, held in ((120.0, 0), ("auto", 3)):
        core = build_harvester(Settings(horizon_s=horizon))
        core.handle(joined(0.0, "n1", "n2", "n3"), submitted(0.0, spec("a", 1, 3, start_cost_s=120.0)))
        assert len(core.held.get("a", ())) == held


def test_a_horizon_is_a_number_of_seconds_or_auto() -> None:
    assert Settings().horizon_s == "auto"
    with pytest.raises(BadValue, match="must be a number of seconds or 'auto', not 'long'"):
        Settings(horizon_s="long")
