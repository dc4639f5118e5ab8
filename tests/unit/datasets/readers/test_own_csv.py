"""Our own CSV: what was saved comes back, and what others wrote is counted row by row."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput, generate_log, load_log, save_log
from tests.helpers.records import imported

DAY = 1_600_000_000


def test_a_saved_log_comes_back_the_same(tmp_path: Path) -> None:
    log = generate_log(12, 1, seed=3)
    save_log(log, tmp_path / "log.csv")
    found = imported(tmp_path, (tmp_path / "log.csv").read_bytes())
    assert found.format == "csv"
    assert found.log.sha256 == log.sha256 == load_log(tmp_path / "log.csv").sha256


def test_rows_in_any_order_and_the_end_as_given(tmp_path: Path) -> None:
    found = imported(tmp_path, f"\n# end_s: {DAY + 90}\n time , node,state\n{DAY + 60},a,busy\n{DAY},a,idle\n")
    assert (found.log.start_s, found.log.end_s) == (DAY, DAY + 90)
    assert found.log.idle_node_s == 60


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = {
        "bad_time": ["soon,a,idle", "nan,a,idle", ",a,idle"],
        "bad_nodes": [f"{DAY},,idle", f"{DAY},a\x07b,idle"],
        "bad_state": [f"{DAY},a,gone", f"{DAY},a,"],
        "malformed": [f"{DAY},a", "a", f"{DAY},a,idle,"],
    }
    text = "time,node,state\n" + "\n".join(line for lines in rows.values() for line in lines)
    found = imported(tmp_path, f'{text}\n{DAY},"a",idle\n{DAY + 9},a,busy\n')
    assert found.rows.aside == {reason: len(lines) for reason, lines in rows.items()}
    assert found.rows.used == 2


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no header"):
        imported(tmp_path, f"{DAY},a,idle\n", format="csv")
    with pytest.raises(BadInput, match="end_s"):
        imported(tmp_path, f"# end_s: soon\ntime,node,state\n{DAY},a,idle\n")
