"""Series of counts: columns in any order, busy or idle, with a total or without."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput
from bftrain_datasets.log.idle_doubts import doubts_of
from tests.helpers.records import finding, imported, kinds
from tests.helpers.site_data import site_data

DAY = 1_600_000_000


@pytest.mark.parametrize(
    "text",
    [
        f"time,active,total\n{DAY},1,4\n{DAY + 60},3,4\n{DAY + 120},3,4\n",
        f"total;busy;time\n4;1;{DAY}\n4;3;{DAY + 60}\n4;3;{DAY + 120}\n",
        f"Time\tIdle\tTotal\n{DAY}000\t3\t4\n{DAY + 60}000\t1\t4\n{DAY + 120}000\t1\t4\n",
        f'"time","idle","used"\n"{DAY}","3","1"\n"{DAY + 60}","1","3"\n"{DAY + 120}","1","3"\n',
        f"# made by hand\nload,time,active,total\n.3,{DAY},1.0,4\n\n.4,{DAY + 60},2.5,4\n.4,{DAY + 120},3,4\n",
        "time,active,total\n2020-09-13T12:26:40Z,1,4\n2020-09-13T12:27:40Z,3,4\n2020-09-13T12:28:40Z,3,4\n",
    ],
)
def test_columns_in_any_form(tmp_path: Path, text: str) -> None:
    found = imported(tmp_path, text)
    assert found.format == "counts"
    assert len(found.log.node_names) == 4
    assert (found.log.start_s, found.log.end_s) == (DAY, DAY + 120)
    assert found.log.idle_node_s == 3 * 60 + 60
    assert found.rows.used == 3


def test_without_a_total_the_machine_is_as_large_as_the_option_says_or_the_largest_count(tmp_path: Path) -> None:
    text = f"time,active\n{DAY},1\n{DAY + 60},3\n{DAY + 90},0\n"
    assert len(imported(tmp_path, text, node_count=8).log.node_names) == 8
    assert imported(tmp_path, text, nodes=("a", "b", "c")).log.node_names == ("a", "b", "c")
    found = imported(tmp_path, text)
    assert len(found.log.node_names) == 3
    assert "nodes_inferred" in kinds(found)


def test_idle_nodes_of_an_unknown_number_are_refused(tmp_path: Path) -> None:
    text = f"time,idle\n{DAY},1\n{DAY + 60},3\n"
    with pytest.raises(BadInput, match="without their total"):
        imported(tmp_path, text)
    assert imported(tmp_path, text, node_count=4).log.idle_node_s == 60


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = {
        "bad_time": ["soon,1,4", "nan,1,4", "1e400,1,4", ",1,4"],
        "bad_count": [f"{DAY},{bad},4" for bad in ("", "x", "-1", "nan", "1e400", 2**70)] + [f"{DAY},1,1e7"],
        "malformed": ["1,2", "1,2,3,4", "\0\0"],
    }
    text = "time,active,total\n" + "\n".join(line for lines in rows.values() for line in lines)
    found = imported(tmp_path, f"{text}\n{DAY},1,4\n{DAY + 9},1,4\n")
    assert found.rows.aside == {reason: len(lines) for reason, lines in rows.items()}
    found = imported(tmp_path, f"time,idle,total\n{DAY},5,4\n{DAY},1,4\n{DAY + 9},1,4\n")
    assert found.rows.aside == {"bad_count": 1}


def test_more_busy_than_there_are_is_cut_off(tmp_path: Path) -> None:
    found = imported(tmp_path, f"time,active,total\n{DAY},5,4\n{DAY + 60},1,4\n")
    assert finding(found, "over_capacity").node_s == 60


def test_node_time_over_capacity_is_doubtful_once(tmp_path: Path) -> None:
    found = imported(tmp_path, f"time,active,total\n{DAY},5,4\n{DAY + 60},1,4\n{DAY + 3600},1,4\n")
    assert finding(found, "over_capacity").node_s == 60
    assert doubts_of(found.log).causes["over_capacity"] == pytest.approx(60 / 3600)


def test_without_a_header_the_error_names_the_columns(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no header"):
        imported(tmp_path, f"{DAY},1,4\n", format="counts")


def test_philly(tmp_path: Path) -> None:
    found = imported(tmp_path, site_data("gpu/philly_node_sequence.csv.gz").read_bytes())
    assert found.rows.used == 105_644
    assert found.log.idle_share == pytest.approx(0.200, abs=0.001)
    assert finding(found, "local_times").count == 105_644
