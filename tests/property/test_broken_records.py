"""Records that are cut, mixed and written over: each row is counted, or the file is refused; nothing else happens."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bftrain import BadInput
from tests.helpers.records import imported
from tests.helpers.samples import SAMPLES
from tests.property.strategies import broken

ODD = [
    *(b"-1", b"0", b"1e400", b"nan", b"-inf", b"18446744073709551616", b"9" * 5000, b"99999999999", b"1.5", b""),
    *(b"\0", b"\xff\xfe", b'"', b'""', b"[", b"{", b"}", b"n[1-999999999]", b"n[3-1]", b",", b":", b";", b"\t", b"\n"),
    *(b"\r\n", b"#", b"null", b"[]", b"{}", b"true", "\u0663".encode(), b"0001-01-01T00:00:00", b"idle", b"a" * 70_000),
]
CASES = [(name, sample) for name, samples in SAMPLES.items() for sample in samples if len(sample) < 2000]


@pytest.mark.parametrize(("name", "sample"), CASES)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_file_is_read_or_refused(tmp_path: Path, name: str, sample: bytes, data: st.DataObject) -> None:
    options = data.draw(
        st.fixed_dictionaries(
            {"counts": st.booleans(), "timezone": st.sampled_from([None, "Europe/Berlin", "+14:00"])},
            optional={"nodes": st.just(("a", "n1")), "node_count": st.integers(1, 5), "format": st.just(name)},
        )
    )
    with suppress(BadInput):  # an internal error is a failure
        imported(tmp_path, data.draw(broken(sample, ODD)), **options)
