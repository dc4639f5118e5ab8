"""Every launcher is put through the conformance suite, with real agents and real training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bftrain import registry
from bftrain_elastic import conformance

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", params=["native", "process", "fake"])
def stage(request: pytest.FixtureRequest) -> Iterator[conformance.Stage]:
    with conformance.Stage(registry.load("launcher", request.param)) as running:
        yield running


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
def test_a_launcher_does_what_its_port_demands(case: conformance.Case, stage: conformance.Stage) -> None:
    case.check(stage)
