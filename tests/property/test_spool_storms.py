"""The spool under any input: bytes of any kind, parts, repetitions, any order, clocks that jump."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain.live.schedulers.hooks import READER, HookSpool, read_line

LINES = st.builds(
    "bftrain1 {} {} {} {} main 0 .\n".format,
    st.sampled_from(["start", "ending", "end"]),
    st.integers(1, 4),
    st.integers(0, 1),
    st.sampled_from(["n1", "n[1-3]", "n1,n7", "n[0]+"]),
)
# A file is written at some moment, its content maybe in two parts with a look between, at some time of its clock
FILES = st.tuples(
    LINES | st.binary(max_size=40).map(lambda data: data.decode("latin-1")), st.floats(0, 4e9), st.booleans()
)


@settings(max_examples=75)
@given(st.lists(FILES, max_size=25), st.integers(1, 5))
def test_every_event_is_heard_once_and_nothing_stays(files: list[tuple[str, float, bool]], every: int) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        spool = HookSpool(folder)
        spool.open()
        now = 0.0
        heard = []
        for number, (text, at_s, parted) in enumerate(files):
            path = folder / f"f{number}"
            with path.open("w", encoding="latin-1", newline="") as file:
                if parted:
                    file.write(text[: len(text) // 2])
                    file.flush()
                    os.utime(path, (at_s, at_s))
                    heard += spool.look(now)
                    if not path.exists():
                        continue  # it was whole, as far as one could tell
                    file.write(text[len(text) // 2 :])
                else:
                    file.write(text)
            os.utime(path, (at_s, at_s))
            if number % every == 0:
                now += 0.02
                heard += spool.look(now)
        for _ in range(4):
            now += 15
            heard += spool.look(now)
        known = [(one.what, one.job, one.restart) for one in heard]
        assert len(known) == len(set(known))
        whole = {found for text, _, _ in files if (found := read_line(text.removesuffix("\n"))) and text[-1:] == "\n"}
        assert set(known) == {(one.what, one.job, one.restart) for one in whole}
        assert [path.name for path in folder.iterdir()] == [READER]


@given(st.text(max_size=80))
def test_no_line_breaks_the_reader(line: str) -> None:
    found = read_line(line)
    assert found is None or line.startswith("bftrain1 ")
