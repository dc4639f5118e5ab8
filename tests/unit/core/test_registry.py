"""Parts by name: built in, or brought by installed packages through entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BrokenPlugin, NotAvailable, Settings, Solver, UnknownName, assembly, build_harvester, registry
from bftrain.ports import Objective
from tests.helpers.named_parts import EXACT
from tests.unit.core import plugins
from tests.unit.core.plugins import HERE, register
from tests.unit.core.samples import joined, spec, submitted

CONTRACTS = {"solver": Solver, "objective": Objective}


@pytest.mark.parametrize("port", CONTRACTS)
def test_everything_built_in_loads_and_keeps_to_its_port(port: registry.Port) -> None:
    found = registry.parts(port)
    assert list(registry.BUILT_IN[port]) == list(found)[: len(registry.BUILT_IN[port])]
    for part in found.values():
        assert isinstance(part.load(), CONTRACTS[port])


def test_a_name_from_before_means_the_same_and_is_noted() -> None:
    assert registry.load("objective", "max_min") is registry.load("objective", "max-min-now")
    assert registry.load("objective", "max_min") is not registry.load("objective", "max-min")
    assert registry.note_on_name("objective", "max_min") == (
        "the objective 'max_min' is called 'max-min-now' now; 'max-min' is another objective"
    )
    assert registry.note_on_name("objective", "max-min") == ""


def test_plug_ins_are_found_beside_what_is_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("solver", "dice", f"{HERE}:dice"), ("placement", "dice", f"{HERE}:dice"))
    part = registry.parts("solver")["dice"]
    assert (part.port, part.name, part.target, part.origin, part.problem) == (
        "solver",
        "dice",
        f"{HERE}:dice",
        "someones-package",
        "",
    )
    assert registry.load("solver", "dice") is plugins.dice
    assert registry.load("solver", "exact") is EXACT
    assert "dice" not in {**registry.parts("objective"), **registry.parts("placement")}, "placements are built in"


def test_a_plug_in_may_be_a_whole_module_or_deep_inside_one(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("solver", "module", HERE), ("solver", "deep", f"{HERE}:parts.Scripted.solve"))
    assert registry.load("solver", "module") is plugins
    with pytest.raises(BrokenPlugin, match="does not implement"):
        registry.load("solver", "deep")


def test_a_built_in_name_cannot_be_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("solver", "exact", f"{HERE}:dice"))
    assert registry.load("solver", "exact") is EXACT
    clash = registry.parts("solver")["exact (someones-package)"]
    assert clash.problem == "the name is already used by bftrain; rename the entry point"
    with pytest.raises(UnknownName):
        registry.load("solver", "exact (someones-package)")


def test_a_plug_in_cannot_take_a_name_that_only_looks_different(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("objective", "Max_Min", f"{HERE}:dice"), ("solver", "equal_share", f"{HERE}:dice"))
    for port, name, taken in (("objective", "Max_Min", "max-min"), ("solver", "equal_share", "equal-share")):
        clash = registry.parts(port)[f"{name} (someones-package)"]
        assert clash.problem == f"the name is already used by bftrain as '{taken}'; rename the entry point"
        with pytest.raises(UnknownName, match=f"did you mean '{taken}'"):
            registry.load(port, name)


def test_of_two_plug_ins_of_one_name_the_first_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("solver", "dice", f"{HERE}:dice"), ("solver", "dice", f"{HERE}:missing"))
    assert registry.load("solver", "dice") is plugins.dice
    assert "someones-package" in registry.parts("solver")["dice (someones-package)"].problem


def test_an_unknown_name_suggests_the_nearest_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("solver", "dice", f"{HERE}:dice"), ("solver", "exact", f"{HERE}:dice"))
    with pytest.raises(UnknownName, match=r"^no solver is called 'dicey' \(did you mean 'dice'\?\)$"):
        registry.load("solver", "dicey")
    with pytest.raises(UnknownName) as unknown:
        registry.load("solver", "zzzzzz")
    assert unknown.value.fix == "known: " + ", ".join(sorted(["dice", *registry.BUILT_IN["solver"]]))


BROKEN = [
    ("no.such.module:thing", "cannot be loaded from no.such.module:thing: ModuleNotFoundError: No module named 'no'"),
    (f"{HERE}:nothing", f"cannot be loaded from {HERE}:nothing: AttributeError: module '{HERE}' has no attribute"),
    ("", "cannot be loaded from : ValueError: Empty module name"),
    (f"{HERE}:Missing", f"{HERE}:Missing is a class, but an instance is required"),
    (f"{HERE}:no_solver", f"{HERE}:no_solver does not implement bftrain.ports.Solver"),
]


@pytest.mark.parametrize(("target", "words"), BROKEN)
def test_a_broken_plug_in_is_an_error_only_for_who_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, target: str, words: str
) -> None:
    register(monkeypatch, ("solver", "bad", target))
    assert registry.load("solver", "exact") is EXACT
    with pytest.raises(BrokenPlugin) as broken:
        registry.load("solver", "bad")
    assert str(broken.value).startswith(f"solver 'bad': {words}")
    assert str(broken.value).endswith("(repair or uninstall someones-package)")


@pytest.mark.parametrize("statement", ["raise RuntimeError('no GPU')", "import sys; sys.exit(1)", "syntax error"])
def test_a_module_may_do_anything_when_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, statement: str
) -> None:
    (tmp_path / "bad_plugin_module.py").write_text(statement)
    monkeypatch.syspath_prepend(tmp_path)
    register(monkeypatch, ("solver", "homeless", "bad_plugin_module:solver"))
    with pytest.raises(BrokenPlugin, match=r"cannot be loaded .*uninstall an unknown package\)$"):
        registry.load("solver", "homeless")


def test_a_solver_that_cannot_run_here_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("solver", "missing", f"{HERE}:missing"))
    with pytest.raises(NotAvailable, match=r"^solver 'missing': no licence \(buy one\)$"):
        assembly.find_solver("missing")


@pytest.mark.parametrize("name", ["rude", "mute"])
def test_a_solver_that_cannot_say_whether_it_can_run_is_broken(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    register(monkeypatch, ("solver", name, f"{HERE}:{name}"))
    with pytest.raises(BrokenPlugin, match=f"^solver '{name}': available\\(\\) failed"):
        assembly.find_solver(name)


def test_a_harvester_is_built_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("solver", "dice", f"{HERE}:dice"))
    plugins.dice.limits.clear()
    settings = Settings(
        solver="dice",
        fallback="",
        objective="speedup",
        max_tasks=1,
        horizon_s=30.0,
        solver_deadline_s=4.0,
        solver_gap=0.1,
        solver_threads=2,
    )
    core = build_harvester(settings)
    core.handle(joined(0, "n1"), submitted(0, spec("a")), submitted(0, spec("b")))
    problem = plugins.dice.asked[-1].problem
    assert (problem.objective, problem.horizon_s, len(problem.tasks)) == ("speedup", 30.0, 1)
    limits = plugins.dice.limits[-1]
    assert 3.0 < limits.deadline_s <= 4.0  # to build the table takes some
    assert (limits.relative_gap, limits.threads) == (0.1, 2)


def test_parts_that_are_handed_in_replace_those_named() -> None:
    objective = registry.load("objective", "weighted")
    core = build_harvester(Settings(solver="no-such"), solver=plugins.dice, objective=objective)
    core.handle(joined(0, "n1"), submitted(0, spec("a")))
    assert plugins.dice.asked[-1].problem.objective == "weighted"


@pytest.mark.parametrize("field", ["solver", "fallback", "objective", "admission", "placement"])
def test_unknown_parts_are_named(field: str) -> None:
    with pytest.raises(UnknownName, match="is called 'no-such'"):
        build_harvester(Settings(**{field: "no-such"}))
