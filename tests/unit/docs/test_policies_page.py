"""The page of policies: every policy is on it, and its measured table is what the script measures."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from bftrain.registry import BUILT_IN
from tests.helpers.pages import ROOT
from tests.helpers.site_data import site_data

PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
SCRIPT = runpy.run_path(str(ROOT / "docs" / "scripts" / "policy_costs.py"))
BATCH_MODEL = runpy.run_path(str(ROOT / "docs" / "scripts" / "batch_model.py"))


def rows(section: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of the first table of a section by what is in their first cell."""
    text = PAGE.split(f"## {section}\n")[1]
    table = re.search(r"(^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    cells = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in table[0].splitlines()]
    return {row[0].strip("`"): row for row in cells[2:]}


def test_every_objective_has_its_formula_and_its_use() -> None:
    table = rows("Objectives")
    assert set(table) == set(BUILT_IN["objective"])
    assert all(len(row) == 3 and all(row) for row in table.values())


@pytest.mark.parametrize("section", ["Objectives", "Allocators"])
def test_who_published_each_is_said(section: str) -> None:
    published = PAGE.split(f"## {section}\n")[1].split("Published by: ")[1].split("\n\n")[0]
    assert set(re.findall(r"`([\w-]+)`", published)) == set(rows(section))


def test_every_rule_is_explained() -> None:
    milp = {"exact", "highs", "cbc", "gurobi"}
    assert set(rows("Allocators")) == set(BUILT_IN["solver"]) - milp - {"equal-share-published"}


def test_every_policy_of_rounds_has_its_rule_and_its_use() -> None:
    table = rows("Policies of rounds")
    assert set(table) == set(BUILT_IN["rounds"])
    assert all(len(row) == 4 and row[1] and row[3] for row in table.values())


def test_every_sharing_policy_has_its_formula_and_its_use() -> None:
    table = rows("Sharing time")
    assert {name for cell in table for name in re.findall(r"[\w-]+", cell)} == set(BUILT_IN["sharing"])
    assert all(len(row) == 3 and all(row) for row in table.values())


def test_every_policy_was_measured() -> None:
    table = rows("What each costs")
    assert set(table) == {*SCRIPT["OBJECTIVES"], *SCRIPT["ALLOCATORS"]}
    assert {*SCRIPT["OBJECTIVES"]} == set(BUILT_IN["objective"])
    assert tuple(table) == (*SCRIPT["OBJECTIVES"], *SCRIPT["ALLOCATORS"])


def test_every_policy_of_rounds_was_measured() -> None:
    table = rows("What each costs in rounds")
    assert tuple(table) == SCRIPT["IN_ROUNDS"]
    assert {*table} >= set(BUILT_IN["rounds"])
    left_out = set(BUILT_IN["sharing"]) - set(table)
    assert all(name.endswith("-packed") for name in left_out - {"deadlines", "cost-deadlines", "strategy-proof"})


def test_the_measured_figures_are_what_comes_out_of_a_replay() -> None:
    table = rows("What each costs")
    result = SCRIPT["replayed"]("throughput")
    most = result.harvested_samples
    assert SCRIPT["row"]("throughput", result, most) == table["throughput"]
    assert SCRIPT["round_row"]("las", most) == rows("What each costs in rounds")["las"]
    for name in ("equal-share", "max-min-now"):
        assert SCRIPT["row"](name, SCRIPT["replayed"](name), most) == table[name]


def test_the_model_of_batches_is_exact_where_steps_follow_it(tmp_path: Path) -> None:
    path = tmp_path / "adaptdl_toy_scalability.csv"
    cells = [
        f"{gpus},{gpus},{batch},{0.2 + 0.05 * gpus + 0.01 * batch},0.1" for gpus in (6, 8, 16) for batch in (8, 16, 40)
    ]
    path.write_text("\n".join(["num_nodes,num_replicas,local_bsz,step_time,sync_time", *cells]))
    with_share, without = BATCH_MODEL["errors"](path)
    assert len(with_share) == len(without) == 6
    assert max(with_share) < 1e-12
    assert min(without) > 0.1


@pytest.mark.parametrize("name", ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"])
def test_the_errors_of_the_model_of_batches_are_those_on_the_page(name: str) -> None:
    row = BATCH_MODEL["row"](site_data("profiles") / f"adaptdl_{name}_scalability.csv")
    assert "| " + " | ".join(row) + " |\n" in PAGE


@pytest.mark.parametrize("name", ["batches", "late", "users"])
def test_the_examples_are_named(name: str) -> None:
    assert f"examples/problems/{name}.json" in PAGE
