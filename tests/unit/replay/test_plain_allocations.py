"""The table of allocations is read many rows at once, and row by row where a row is unusual."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput
from bftrain_replay import replay_folder
from bftrain_replay.output import parquet_tables, plain_allocations
from bftrain_replay.output.read_folder import SavedReplay
from tests.unit.replay.test_report_page import study_of

HEADER = "task,node,from_s,to_s\n"
ROWS = "one,n1,0.0,24.48170731707317\ntwo,n2,0.1,24.48170731707317\none,n2,24.5,1e3\n"


def table_of(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("at_once", [1, 40, 1 << 20])
def test_rows_are_the_same_however_much_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(plain_allocations, "_AT_ONCE", at_once)
    monkeypatch.setattr(plain_allocations, "_MOST_TIMES", 2)
    for text in (ROWS, ROWS.removesuffix("\n")):
        found = plain_allocations.plain_allocations(table_of(tmp_path / "allocations.csv", HEADER + text))
        assert found is not None
        assert (found.tasks, found.nodes, len(found)) == (("one", "two"), ("n1", "n2"), 3)
        table = found.table()
        assert table.task.tolist() == [0, 1, 0]
        assert table.node.tolist() == [0, 1, 1]
        assert table.from_s.tolist() == [0.0, 0.1, 24.5]
        assert table.to_s.tolist() == [24.48170731707317, 24.48170731707317, 1000.0]


@pytest.mark.parametrize(
    "text",
    [
        "node,task,from_s,to_s\n" + ROWS,
        HEADER + ROWS + "\n",
        HEADER + ROWS + "one,n1,5\n",
        HEADER + "one,n1,5\none,n2,1,2,3\n",
        HEADER + '"o,ne",n1,0,1\n',
        HEADER + "one,n1,,1\n",
        HEADER + "one,n1,soon,1\n",
        HEADER + "o\0e,n1,0,1\n",
    ],
)
def test_an_unusual_row_is_left_to_the_other_way(tmp_path: Path, text: str) -> None:
    assert plain_allocations.plain_allocations(table_of(tmp_path / "allocations.csv", text)) is None


def test_a_damaged_row_is_named_by_its_line(tmp_path: Path) -> None:
    replay_folder.write(study_of("one"), tmp_path)
    table = tmp_path / "allocations.csv"
    table.write_text(table.read_text() + "one,a,5.0\n")
    with pytest.raises(BadInput, match="3 cells in a row of 4") as raised:
        SavedReplay(tmp_path).holdings()
    assert raised.value.where is not None
    assert raised.value.where.endswith(f"allocations.csv:{len(table.read_text().splitlines())}")


def test_names_with_commas_are_read_too(tmp_path: Path) -> None:
    replay_folder.write(study_of("one"), tmp_path)
    table = tmp_path / "allocations.csv"
    table.write_text(table.read_text().replace("one,", '"o,ne",'))
    assert SavedReplay(tmp_path).holdings().tasks == ("o,ne",)


@pytest.mark.parametrize("dictionaries", [True, False])
def test_parquet_is_read_in_batches_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dictionaries: bool
) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install '.[parquet]'")
    pa = parquet_tables.pyarrow()
    monkeypatch.setattr(parquet_tables, "BLOCK_ROWS", 2)
    monkeypatch.delattr(parquet_tables, "rows")
    names = [pa.array(["one", "two", "one"]), pa.array(["n2", "n1", "n1"])]
    if dictionaries:  # in the order of the log, as a replay writes them
        names = [
            pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array(["two", "one"])),
            pa.DictionaryArray.from_arrays(pa.array([1, 0, 0]), pa.array(["n1", "n2", "never"])),
        ]
    times = {"from_s": [0.0, 1.0, 2.5], "to_s": [3, 4, 5]}
    replay_folder.write(study_of("one"), tmp_path)
    (tmp_path / "allocations.csv").unlink()
    path = tmp_path / "allocations.parquet"
    pa.parquet.write_table(pa.table({"task": names[0], "node": names[1], **times}), path)
    found = SavedReplay(tmp_path).holdings()
    assert (found.tasks, found.nodes) == (("one", "two"), ("n2", "n1"))
    table = found.table()
    assert [column.tolist() for column in (table.task, table.node, table.from_s, table.to_s)] == [
        [0, 1, 0],
        [0, 1, 1],
        *times.values(),
    ]
    for wrong, said in (([1.0, None, 2.0], "has an empty cell"), (["a", "b", "c"], "not the table it should be")):
        pa.parquet.write_table(pa.table({"task": names[0], "node": names[1], **times, "to_s": wrong}), path)
        with pytest.raises(BadInput, match=said):
            SavedReplay(tmp_path).holdings()
