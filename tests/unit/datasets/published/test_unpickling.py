"""Pickles are read as data: nothing in them ever runs, and what is no table is refused in words."""

from __future__ import annotations

import copyreg
import gzip
import io
import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bftrain import BadInput
from bftrain_datasets.published.frame import ADMITTED, load_frame
from tests.helpers import pickles
from tests.helpers.pickles import (
    array,
    asked,
    asked_on_stack,
    blob,
    called,
    dtype,
    listed,
    load,
    number,
    refused,
    text,
    tupled,
    whole,
)
from tests.helpers.samples import PICKLES

PANDAS = ("0.25", "1.1", "1.5", "2.2", "3.1")


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every harmful pickle here would leave a file called "ran" behind."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "ran").exists()


class Calls:
    """Pickled, this calls something."""

    def __init__(self, what: object, *args: object) -> None:
        self.what, self.args = what, args

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.what, self.args


# A pickle


def test_the_harmful_pickles_do_harm_in_python_itself(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Calls(os.system, "touch ran")))  # noqa: S301 - shows that the tests below would notice
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (Calls(os.system, "touch ran"), "posix.system"),
        (Calls(eval, "open('ran', 'w')"), "builtins.eval"),
        (Calls(exec, "open('ran', 'w')"), "builtins.exec"),
        (Calls(getattr, Calls(open, "ran", "w"), "close"), "builtins.getattr"),
        (Calls(subprocess.Popen, ["touch", "ran"]), "(subprocess|commands).Popen"),
        (Calls(np.load, "x"), "numpy.load"),
        (Calls(np.fromfile, "x"), "numpy.*fromfile"),
        (Calls(pd.read_pickle, "x"), "pandas.*read_pickle"),
    ],
    ids=["system", "eval", "exec", "getattr", "Popen", "load", "fromfile", "read_pickle"],
)
def test_a_call_of_anything_else_is_refused_by_its_name(protocol: int, call: Calls, name: str) -> None:
    with pytest.raises(BadInput, match=f"the pickle uses {name}, which tables do not need"):
        load(pickle.dumps(call, protocol=protocol))


@pytest.mark.parametrize(
    ("content", "asks_for"),
    [
        (called(asked("os", "system"), text("x")), "os.system"),
        (called(asked_on_stack("os", "system"), text("x")), "os.system"),
        (asked("numpy", "dtype.__class__"), "numpy.dtype.__class__"),
        (asked_on_stack("numpy", "ndarray.__subclasses__"), "numpy.ndarray.__subclasses__"),
        (asked("pandas", "io.common.os.system"), "pandas.io.common.os.system"),
        (asked("pandas.core.frame", "os"), "pandas.core.frame.os"),
        (asked("__builtin__", "eval"), "builtins.eval"),
        (asked("copy_reg", "_reconstructor"), "copyreg._reconstructor"),
        (called(asked("builtins", "getattr"), asked("os", "x"), text("system")), "builtins.getattr"),
        (asked("os\x1b[31m", "x"), r"'os\x1b[31m.x'"),
    ],
)
def test_names_are_compared_as_a_whole(content: bytes, asks_for: str) -> None:
    assert refused(whole(content)) == f"the pickle uses {asks_for}, which tables do not need"


@pytest.mark.parametrize(
    "operations",
    [
        b"(X\x01\x00\x00\x00xios\nsystem\n",  # INST
        b"(" + text("x") + b"o",  # OBJ
        b"Pos.system\n",  # PERSID
        b"\x82\xf0",  # EXT1
        b")}\x92",  # NEWOBJ_EX
        b"\x97",  # NEXT_BUFFER
        b"\x8f",  # EMPTY_SET
        b"I1\n",  # INT
        # Calls and states of anything but a name
        called(text("os.system"), text("x")),
        called(called(asked("numpy", "dtype"), text("i1")), text("x")),
        called(listed(), text("x")),
        asked("numpy", "dtype") + pickles.mapped(x=number(1)) + b"b",
        called(asked("numpy", "dtype"), text("i1")) + tupled(number(1)) + b"b" + tupled(number(2)) + b"b",
    ],
)
def test_operations_that_tables_do_not_need_are_refused(operations: bytes) -> None:
    copyreg.add_extension("os", "system", 240)
    try:
        assert pickle.loads(b"\x82\xf0.") is os.system  # noqa: S301 - now in the cache of pickle
        assert "a damaged pickle" in refused(whole(operations))
    finally:
        copyreg.remove_extension("os", "system", 240)


def test_a_table_whose_cells_hide_a_call_is_refused() -> None:
    harm = Calls(os.system, "touch ran")
    cell = pd.DataFrame({"a": pd.Series([1, [2, {"deep": harm}]], dtype=object)})
    label = pd.DataFrame({"a": [1, 2]}, index=pd.Index([harm, 2], dtype=object))
    note = pd.DataFrame({"a": [1]})
    note.attrs["note"] = harm
    for hidden in (cell, label, note):
        assert "posix.system" in refused(pickle.dumps(hidden))


def test_what_is_asked_for_is_never_imported() -> None:
    code = f"""
import sys
from bftrain_datasets.published.frame import load_frame
with open({str(PICKLES / "pandas-3.1-nodes.pkl")!r}, "rb") as file:
    print(load_frame(file, "x").columns, sorted({{"pandas", "pyarrow"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "('n1', 'n2', 'n3') []\n"


# Damage and greed


@pytest.mark.parametrize("name", [f"pandas-{version}-nodes.pkl" for version in PANDAS])
def test_a_pickle_cut_off_anywhere_is_refused(name: str) -> None:
    content = (PICKLES / name).read_bytes()
    for end in range(len(content)):
        assert refused(content[:end])
    assert load(content + b"what comes after the end is not read").columns == ("n1", "n2", "n3")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "truncated"),
        (b"time,node,state\n", "a damaged pickle"),
        (b"\x80\x09N.", "a damaged pickle"),
        (whole(), "a damaged pickle"),
        (whole(b"("), "a damaged pickle"),
        (whole(b"NNa"), "a damaged pickle"),
        (whole(b"]NNs"), "a damaged pickle"),
        (whole(b"})Ns"), "a damaged pickle"),
        (whole(b"}(Nu"), "a damaged pickle"),
        (whole(b"h\x05"), "a damaged pickle"),
        (whole(b"\xff"), "a damaged pickle"),
        (whole(b"X\x01\x00\x00\x00\xff"), "a damaged pickle"),
        (whole(b"\x8e" + b"\xff" * 8), "a damaged pickle"),
        (whole(b"X\xff\xff\xff\x7f"), "truncated|a damaged pickle"),
        (whole(b"N"), "contains no pandas DataFrame"),
        (whole(asked("pandas", "DataFrame")), "contains no pandas DataFrame"),
        (whole(called(asked("pandas", "DataFrame"))), "contains no pandas DataFrame"),
        (whole(pickles.with_state(called(asked("pandas", "DataFrame")), pickles.mapped())), "has no values"),
    ],
)
def test_what_is_no_table_is_refused(content: bytes, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        load(content)


def test_pointers_in_the_file_are_no_objects() -> None:
    """Numpy itself would take the bytes for objects: the type says that its values are no references."""
    made = called(asked("numpy", "dtype"), text("O8"), b"\x89", b"\x88")
    kind = pickles.with_state(made, tupled(number(3), text("|"), b"N", b"N", b"N", number(-1), number(-1), number(0)))
    assert "needs 4 values" in refused(pickles.table(array(kind, (2, 2), blob(bytes(range(32))))))


def test_depth_is_no_danger() -> None:
    deep = 100_000
    assert "no pandas DataFrame" in refused(whole(b"]" * deep, b"a" * (deep - 1)))
    assert "no pandas DataFrame" in refused(whole(b"N", b"\x85" * deep))
    made = called(asked("numpy.core.multiarray", "_reconstruct"), number(0))
    shape = b"N" + b"\x85" * deep
    values = pickles.with_state(made, tupled(number(1), shape, dtype("i1"), b"\x89", blob(b"")))
    assert "an impossible shape" in refused(pickles.table(values))
    assert "a damaged pickle" in refused(whole(b"}N", b"\x85" * deep, b"Ns"))  # as a key it would be hashed


def test_reading_a_huge_byte_string_needs_its_room_once() -> None:
    size = 16 << 20
    content = pickles.table(array(dtype("i1"), (2, size // 2), blob(bytes(size))), rows=2)
    stream = io.BytesIO(content)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="does not fit"):
            load_frame(stream, "x")
        assert tracemalloc.get_traced_memory()[1] < 1.2 * size
    finally:
        tracemalloc.stop()


def test_the_allowlist_names_data_only() -> None:
    homes = {module.partition(".")[0] for module, _ in ADMITTED}
    assert homes == {"numpy", "pandas", "pyarrow", "builtins", "_codecs", "datetime", "pytz"}
    assert {name for module, name in ADMITTED if module == "builtins"} == {"slice", "bytes", "bytearray"}


@pytest.mark.parametrize("damage", [b"", b"\xff" * 60], ids=["truncated", "overwritten"])
def test_a_stream_out_of_a_damaged_archive_is_refused(damage: bytes) -> None:
    packed = gzip.compress((PICKLES / "pandas-3.1-nodes.pkl").read_bytes(), mtime=0)[:200] + damage
    stream = io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(packed)))
    with stream, pytest.raises(BadInput, match=r"x.pkl: .*fetch the file again"):
        load_frame(stream, "x.pkl")
