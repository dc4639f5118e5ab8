"""Jobs that are cut, mixed and written over: each row is a task or counted, or the file is refused; nothing else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bftrain import BadInput, load_tasks, save_tasks
from tests.helpers.workloads import SAMPLES, TABLE, read
from tests.property.strategies import broken

STRANGE = [
    *(b"-1", b"0", b"1e400", b"nan", b"-inf", b"18446744073709551616", b"9" * 5000, b"99999999999", b"1.5", b""),
    *(b"\0", b"\xff\xfe", b'"', b"[", b"]", b"{", b"}", b",", b":", b";", b"\t", b"\n", b"\r\n", b"#", b"null", b"[]"),
    *(b"true", "\u0663".encode(), "\u00b2".encode(), b"0001-01-01 00:00:00", b"9999-12-31", b"1e300", b"a" * 5000),
    *(b"\xed\xa0\x80", b"\\ud800", b"None", b"-0", b"1_000", b"\x1b[2J", b"MaxNodes: 99999999999"),
]


@st.composite
def options(draw: st.DrawFn, name: str) -> dict[str, Any]:
    optional: dict[str, st.SearchStrategy[Any]] = {
        "per_node": st.integers(1, 9),
        "nodes": st.integers(1, 9),
        "begin_s": st.sampled_from([0.0, 1.6e9]),
        "strict": st.booleans(),
        "format": st.just(name.partition(" ")[0]),
    }
    if name == "gavel":
        optional["elastic"] = st.booleans()
        optional["kinds"] = st.sampled_from([("v100",), ("k80",)])
    return draw(st.fixed_dictionaries({}, optional=optional))


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_file_of_jobs_is_read_or_refused(name: str, data: st.DataObject) -> None:
    content = data.draw(broken(SAMPLES[name].encode(), STRANGE))
    chosen = data.draw(options(name))
    with TemporaryDirectory() as folder, suppress(BadInput):  # an internal error is a failure
        found = read(Path(folder), content, speeds=TABLE if name == "gavel" else None, **chosen)
        assert found.rows.read == found.rows.used + sum(found.rows.aside.values())
        assert found.rows.used == len(found.tasks)
        assert [task.submit_s for task in found.tasks] == sorted(task.submit_s for task in found.tasks)
        most = chosen.get("nodes")
        assert most is None or all(task.min_nodes <= most for task in found.tasks)
        path = Path(folder) / "tasks.toml"
        save_tasks(found.tasks, path)
        assert load_tasks(path) == found.tasks
