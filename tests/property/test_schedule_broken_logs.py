"""Any SWF log gives a schedule, or a refusal in words; in bounded time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from bftrain import BadInput, schedule

STRANGE: Final = [
    *["-1", "0", "-7", "0.5", "1e400", "nan", "-inf", "9" * 400, "18446744073709551616", "99999999999999", "1_000"],
    *["1e11", "-1e10", "1e-300", "x", "\u0661", "\0", "\xff", ";", "{a,b}", "", "\t", "2147483648"],
]
HEADERS: Final = ["; MaxNodes: 8", "; MaxProcs: 32", "; MaxNodes: 0", "; MaxNodes: 99999999999", "; UnixStartTime: 5"]
POLICIES: Final = ["fcfs", "easy", "fairshare", "ostrich"]


@st.composite
def logs(draw: st.DrawFn) -> str:
    lines = draw(st.lists(st.sampled_from(HEADERS), max_size=3))
    for number in range(draw(st.integers(1, 8))):
        submit, run, procs = draw(st.integers(0, 99)), draw(st.integers(0, 99)), draw(st.integers(1, 9))
        fields = f"{number} {submit} -1 {run} {procs} -1 -1 {procs} 50 -1 1 {number % 3} 1 -1 1 -1 -1 -1".split()
        for _ in range(draw(st.integers(0, 2))):
            fields[draw(st.integers(0, 17))] = draw(st.sampled_from(STRANGE))
        lines.append(" ".join(fields))
    return "\n".join(lines) + "\n"


@given(
    text=logs(),
    policy=st.sampled_from(POLICIES),
    estimates=st.sampled_from(("limit", "actual")),
    nodes=st.sampled_from((None, 8)),
)
def test_a_strange_log_is_scheduled_or_refused(text: str, policy: str, estimates: str, nodes: int | None) -> None:
    with TemporaryDirectory() as name:
        path = Path(name) / "log.swf"
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        with suppress(BadInput):
            result = schedule(path, policy=policy, estimates=estimates, nodes=nodes)
            assert result.summary["done"] + result.summary["refused"] == result.summary["jobs"] or not result.complete
            result.write(name)
