"""The published replayer's log: a pickled table, read without running anything in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput
from tests.helpers.pickles import asked, called, text, whole
from tests.helpers.records import finding, imported
from tests.helpers.samples import PICKLES

TABLES = sorted(PICKLES.glob("*-nodes.pkl"))


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_tables_of_any_pandas(tmp_path: Path, table: Path) -> None:
    found = imported(tmp_path, table.read_bytes())
    assert found.format == "ndstat"
    assert found.rows.read == found.rows.used + found.rows.aside.get("superseded", 0)
    assert found.log.idle_node_s > 0


def test_nodes_can_be_chosen(tmp_path: Path) -> None:
    table = TABLES[-1].read_bytes()
    whole_log = imported(tmp_path, table).log
    chosen = whole_log.node_names[1], "elsewhere"
    found = imported(tmp_path, table, nodes=chosen)
    assert found.log.node_names == chosen
    assert finding(found, "unknown_nodes").count == len(whole_log.node_names) - 1
    assert found.log.idle_node_s == whole_log.select(nodes=[1]).idle_node_s


def test_tables_of_tasks_are_not_logs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unknown format"):
        imported(tmp_path, (PICKLES / "pandas-2.2-bounds.pkl").read_bytes())


def test_a_pickle_that_would_do_harm_is_refused(tmp_path: Path) -> None:
    bait = text("pandas") + text("DataFrame")
    hostile = whole(bait, called(asked("os", "system"), text(f"touch {tmp_path}/harm")))
    with pytest.raises(BadInput):
        imported(tmp_path, hostile)
    assert not (tmp_path / "harm").exists()


def test_a_table_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        imported(tmp_path, TABLES[-1].read_bytes()[:-200])
