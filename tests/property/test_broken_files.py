"""Any file is read, or refused in words. Never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from bftrain import BadInput, EventLog, NodeState, generate_mix, load_log, load_tasks, save_log, save_tasks
from tests.helpers.transitions import log_from_transitions

LOG = log_from_transitions(
    [(0.0, "a", NodeState.IDLE), (5.0, "b", NodeState.DOWN), (7.5, "a", NodeState.BUSY)], node_names="cab", end_s=9
)
PIECES = [
    "[[task]]\n",
    'name = "t"\n',
    'profile = "vgg16"\n',
    "curve = {",
    "}",
    "\n",
    ",",
    '"',
    "#",
    "time,node,state\n",
]
PIECES += [
    "0,a,idle\n",
    "1e999,a,busy\n",
    "# end_s: 1\n",
    "nan",
    "-1",
    "[",
    "]",
    "=",
    "name,profile\n",
    "t,vgg16\n",
    "\r",
]


def saved(name: str, save: Callable[[Path], None]) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        save(path)
        return path.read_bytes()


def read(name: str, content: bytes, load: Callable[[Path], object]) -> object:
    """Load a file with this content; a refusal must say where, and counts as nothing."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            return load(path)
        except BadInput as error:
            refusal = error
        assert str(path) in (refusal.where or "")
        return None


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """Cut a piece out of a good file and put something else in its place."""
    places = st.integers(0, len(whole))
    parts = st.tuples(places, places, st.binary(max_size=6))
    return parts.map(lambda cut: whole[: min(cut[:2])] + cut[2] + whole[max(cut[:2]) :])


@given(st.one_of(st.binary(max_size=80), st.lists(st.sampled_from(PIECES)).map(lambda parts: "".join(parts).encode())))
def test_any_bytes_under_any_name(content: bytes) -> None:
    for name in ("x.csv", "x.npz"):
        read(name, content, load_log)
    for name in ("x.csv", "x.toml"):
        read(name, content, load_tasks)


@given(damaged(saved("x.npz", lambda path: save_log(LOG, path))))
def test_a_damaged_npz_log(content: bytes) -> None:
    found = read("x.npz", content, load_log)
    assert found is None or isinstance(found, EventLog)


@given(st.data())
def test_a_damaged_parquet_log(data: st.DataObject) -> None:
    content = data.draw(damaged(saved("x.parquet", lambda path: save_log(LOG, path))))
    found = read("x.parquet", content, load_log)
    assert found is None or isinstance(found, EventLog)


@given(damaged(saved("x.csv", lambda path: save_log(LOG, path))))
def test_a_damaged_csv_log(content: bytes) -> None:
    found = read("x.csv", content, load_log)
    assert found is None or isinstance(found, EventLog)


@given(damaged(saved("x.toml", lambda path: save_tasks(generate_mix(3, 1), path))))
def test_a_damaged_task_file(content: bytes) -> None:
    read("x.toml", content, load_tasks)


@given(damaged(saved("x.csv", lambda path: save_tasks(generate_mix(3, 1), path))))
def test_a_damaged_task_table(content: bytes) -> None:
    read("x.csv", content, load_tasks)
