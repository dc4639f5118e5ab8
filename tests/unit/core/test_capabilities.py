"""What solvers can do and objectives ask for: one declared value, or the single attributes of parts without it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Literal

import pytest

from bftrain import registry
from bftrain.ports import ObjectiveCapabilities, SolverCapabilities, objective_capabilities, solver_capabilities
from bftrain.rerun import RememberingSolver


def test_a_declared_value_is_taken_as_it_is() -> None:
    able, asked = SolverCapabilities(node_kinds=True), ObjectiveCapabilities(uses_history=True)
    assert solver_capabilities(SimpleNamespace(capabilities=able, couples=True)) is able
    assert objective_capabilities(SimpleNamespace(capabilities=asked, coupled=True)) is asked


@pytest.mark.parametrize(
    ("attribute", "field"),
    [
        ("couples", "any_coupling"),
        ("levels", "level_coupling"),
        ("kinds", "node_kinds"),
        ("uses_history", "uses_history"),
        ("uses_work_left", "uses_work_left"),
    ],
)
def test_a_solver_may_say_it_by_single_attributes(attribute: str, field: str) -> None:
    assert solver_capabilities(SimpleNamespace(name="plain")) == SolverCapabilities()
    assert solver_capabilities(SimpleNamespace(**{attribute: True})) == SolverCapabilities(**{field: True})


def test_an_objective_may_say_it_by_single_attributes() -> None:
    assert objective_capabilities(SimpleNamespace(name="plain")) == ObjectiveCapabilities(uses_work_left=True)
    several = SimpleNamespace(coupled=True, uses_history=True, uses_work_left=False)
    asked = ObjectiveCapabilities(level_coupling=True, uses_history=True, uses_work_left=False)
    assert objective_capabilities(several) == asked
    assert objective_capabilities(SimpleNamespace(couple=print)) == ObjectiveCapabilities(any_coupling=True)


@pytest.mark.parametrize(
    ("asked", "able", "solved"),
    [
        ({}, {}, True),
        ({"level_coupling": True}, {}, False),
        ({"level_coupling": True}, {"level_coupling": True}, True),
        ({"level_coupling": True}, {"any_coupling": True}, True),
        ({"any_coupling": True}, {"level_coupling": True}, False),
        ({"any_coupling": True}, {"any_coupling": True}, True),
    ],
)
def test_which_solver_can_be_asked(asked: dict[str, bool], able: dict[str, bool], *, solved: bool) -> None:
    assert ObjectiveCapabilities(**asked).solved_by(SolverCapabilities(**able)) is solved


@pytest.mark.parametrize("port", ["solver", "objective"])
def test_every_built_in_part_declares_them(port: Literal["solver", "objective"]) -> None:
    kind = SolverCapabilities if port == "solver" else ObjectiveCapabilities
    for name in registry.parts(port):
        part = registry.load(port, name)
        assert isinstance(part.capabilities, kind), name


def test_a_solver_around_another_has_its_capabilities() -> None:
    solver = registry.load("solver", "srtf")
    assert RememberingSolver(solver).capabilities == solver.capabilities
    assert solver.capabilities.uses_work_left


def test_they_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        SolverCapabilities().node_kinds = True  # type: ignore[misc]  # that is the test
