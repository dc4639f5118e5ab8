"""Log files: what is saved is loaded again, and what is no log is refused with its place and a remedy."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bftrain import BadInput, BadValue, EventLog, NodeState, files, load_log, sample_log, save_log
from bftrain_datasets.log.provenance import DoubtfulTime, LogProvenance, ProvenanceSource
from tests.helpers.transitions import log_from_transitions

IDLE, BUSY, DOWN = NodeState.IDLE, NodeState.BUSY, NodeState.DOWN
SUFFIXES = (".npz", ".csv", ".parquet")


def awkward_log() -> EventLog:
    """Return a log with odd names, odd times, a node that is down, one that is never idle, and an empty first time."""
    return log_from_transitions(
        [(0.1 + 0.2, 'say "hi", node', IDLE), (1e9 + 1 / 3, "ñode-ß", DOWN), (1e9 + 1 / 3, 'say "hi", node', BUSY)],
        node_names=("never", "#5", "ñode-ß"),
        begin_s=-1.5,
        end_s=2e9,
        provenance=LogProvenance(
            made_by="reader of nothing",
            options={"deep": {"list": [1, 2.5, None, "x"]}},
            sources=(ProvenanceSource(name="a b.log", sha256="00", size_bytes=3),),
            steps=("one", "two"),
        ),
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("make", [awkward_log, sample_log])
def test_what_is_saved_is_loaded_again(tmp_path: Path, suffix: str, make: object) -> None:
    log = make()  # type: ignore[operator]
    path = tmp_path / f"log{suffix}"
    save_log(log, path)
    again = load_log(path)
    assert again == log
    assert again.sha256 == log.sha256
    assert again.provenance == log.provenance
    assert again.node_names == log.node_names
    for column in ("times", "offsets", "nodes", "states", "before"):
        np.testing.assert_array_equal(getattr(again, column), getattr(log, column))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_log_gives_the_same_bytes_and_nothing_is_left_beside(tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    save_log(awkward_log(), first)
    save_log(load_log(first), second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == [first, second]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_earlier_versions_can_read_a_log_without_doubts(tmp_path: Path, suffix: str) -> None:
    """They refuse a provenance with a key that they do not know."""
    path = tmp_path / f"log{suffix}"
    save_log(awkward_log(), path)
    story = zipfile.ZipFile(path).read("provenance.npy") if suffix == ".npz" else path.read_bytes()
    assert (b"made_by" in story, b"doubtful" in story) == (True, False)
    doubt = DoubtfulTime(cause="always_idle", of_nodes=3, times=(0.0,), nodes=(1,))
    doubted = replace(awkward_log(), provenance=LogProvenance(doubtful=(doubt,)))
    save_log(doubted, path)
    assert load_log(path).provenance.doubtful == (doubt,)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_long_provenance_is_loaded_again(tmp_path: Path, suffix: str) -> None:
    steps = ("word " * 100_000 + ".", "\N{NO-BREAK SPACE}" * 300_000 + ".")
    times = tuple(float(time) for time in range(150_000))
    doubtful = DoubtfulTime(cause="over_capacity", of_nodes=4, times=times, nodes=(1,) * len(times))
    log = log_from_transitions(
        [(0.0, "a", NodeState.IDLE)], end_s=9.0, provenance=LogProvenance(doubtful=(doubtful,), steps=steps)
    )
    save_log(log, tmp_path / f"log{suffix}")
    assert load_log(tmp_path / f"log{suffix}").provenance == log.provenance


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_save_leaves_the_old_file_alone(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"log{suffix}"
    path.write_text("precious")

    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space") as raised:
        save_log(sample_log(), path)
    assert raised.value.filename == str(path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_the_csv_file_is_made_for_people(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    save_log(log_from_transitions([(0, "a", IDLE), (5, "a", DOWN)], node_names="ba", end_s=9), path)
    title, end, checksum, story, *rows = path.read_text().splitlines()
    assert (title, end) == ("# bftrain event log 1", "# end_s: 9.0")
    assert checksum.startswith("# sha256: ")
    assert story.startswith('# provenance: {"made_by":"hand"')
    assert rows == ["time,node,state", "0.0,b,busy", "0.0,a,idle", "5.0,a,down"]


def test_the_npz_file_opens_with_plain_numpy(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    log = awkward_log()
    save_log(log, path)
    with np.load(path, allow_pickle=False) as columns:
        assert columns["node_names"].tobytes().decode().split("\n") == list(log.node_names)
        assert columns["times"].tolist() == log.times.tolist()


def test_a_csv_of_another_program_is_read_and_its_source_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "theirs.csv"
    path.write_bytes("\ufefftime, node, state\r\n20,a,busy\r\n\r\n10,a,idle\r\n10,b,busy\r\n25,b,idle\r\n".encode())
    log = load_log(path)
    assert log.node_names == ("a", "b")
    assert (log.start_s, log.end_s, log.idle_node_s) == (10.0, 25.0, 10.0)
    assert log.provenance.made_by == "reader csv"
    assert log.provenance.sources == (ProvenanceSource.of(path),)
    assert log.provenance.counts["transitions"] == 4
    assert log.provenance.counts["stated_busy"] == 1


def csv_text(*rows: str) -> str:
    return "\n".join(("time,node,state", *rows)) + "\n"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (b"", "", "the file is empty"),
        (b"# bftrain event log 1\n", ":1", "the file is empty"),
        (b"a,b\n1,2\n", ":1", "the first row is 'a,b'"),
        (csv_text("0,a,idle", "5,a").encode(), ":3", "2 cells instead of 3"),
        (csv_text("0,a,idle", "5,a,bu").encode(), ":3", "'bu' is not a state .*did you mean 'busy'"),
        (csv_text("soon,a,idle").encode(), ":2", "time: 'soon' is not a time"),
        (csv_text("nan,a,idle").encode(), ":2", "time: 'nan' is not a time"),
        (csv_text("1,,idle").encode(), ":2", "node: '' is not a name"),
        (csv_text('1,"a,idle').encode(), ":2", "not a CSV row"),
        (csv_text("1,a\x07b,idle").encode(), ":2", "is not a name"),
        (csv_text().encode(), ":1", "no node changes its state"),
        (csv_text("1,a,idle").encode() + b"2,\xff,idle\n", ":3", "not UTF-8 text"),
        (csv_text("1,a,idle").encode() + b"\0\0\0\0", ":3", "contains zero bytes"),
        (b"time,node,state\n" + b"x" * (1 << 21), ":2", "a line of more than"),
        (b"# end_s: 3\n" + csv_text("5,a,idle").encode(), ":3", "stops at 3.0, before"),
        (b"# end_s: late\n" + csv_text("5,a,idle").encode(), ":1", "end_s: 'late' is not a time"),
        (b"# provenance: {}x\n" + csv_text("5,a,idle").encode(), ":1", "not valid JSON"),
        (b'# provenance: {"who":1}\n' + csv_text("5,a,idle").encode(), ":1", "who"),
    ],
)
def test_a_bad_csv_is_refused_with_file_and_line(tmp_path: Path, text: bytes, line: str, says: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text)
    with pytest.raises(BadInput, match=says) as caught:
        load_log(path)
    assert caught.value.where == f"{path}{line}"


def test_a_csv_cut_off_between_lines_is_noticed_by_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    save_log(sample_log(), path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-10]))
    with pytest.raises(BadInput, match="truncated or edited") as caught:
        load_log(path)
    assert caught.value.where == f"{path}:3"
    path.write_text("".join(line for line in lines[:-10] if not line.startswith("# sha256")))
    assert load_log(path).provenance.steps == ("read from a CSV file with no checksum",)


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    save_log(sample_log(), path)
    whole = path.read_bytes()
    for damaged in (
        b"",
        b"PK",
        whole[1:],
        whole[: len(whole) // 2],
        whole[:-30],
        b"\x89PNG\r\n" + whole[:99],
        b"text\n",
    ):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="not a readable log file") as caught:
            load_log(path)
        assert str(path) in str(caught.value)


def test_a_flipped_byte_anywhere_in_an_npz_is_an_error_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    log = awkward_log()
    save_log(log, path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            assert load_log(path) == log
        except BadInput:
            continue


def rewritten(path: Path, **members: np.ndarray) -> None:
    with np.load(path, allow_pickle=True) as old:
        parts = {name: old[name] for name in old.files} | members
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, part, allow_pickle=True)
            archive.writestr(f"{name}.npy", buffer.getvalue())


@pytest.mark.parametrize(
    ("member", "value", "says"),
    [
        ("times", np.array([1.0, 0.0, 2.0]), r"\(times\).*rise strictly"),
        ("nodes", np.array([9, 9, 9], dtype=np.int32), r"\(nodes\).*between 0 and 3"),
        ("states", np.array([object()] * 3), r"\(states\).*must contain numbers, not \|O"),
        ("end_s", np.array([1.0, 2.0]), r"\(end_s\).*must contain one number"),
        ("format", np.frombuffer(b"bftrain event log 9", dtype=np.uint8), r"\(format\).*later version"),
        ("provenance", np.frombuffer(b"{", dtype=np.uint8), r"\(provenance\).*JSON"),
        ("node_names", np.frombuffer(b"\xff", dtype=np.uint8), r"\(node_names\).*UTF-8"),
        ("times", np.arange(9.0), r"\(offsets\): has 4 values for 9 times; it needs one more"),
        ("offsets", np.arange(9), r"\(offsets\): has 9 values for 3 times; it needs one more"),
        ("states", np.zeros(9, np.int8), r"\(states\): has 9 values for 3 nodes"),
        ("end_s", np.array([1 + 1j]), r"\(end_s\).*must contain numbers, not <c16"),
        ("times", np.zeros((1, 3)), r"\(times\).*a one-dimensional list, not 2 dimensions"),
        ("node_names", np.full(3_000_001, ord("\n"), np.uint8), r"\(node_names\): has more than 1,000,000 names"),
    ],
)
def test_a_wrong_part_of_an_npz_is_named(tmp_path: Path, member: str, value: np.ndarray, says: str) -> None:
    path = tmp_path / "log.npz"
    save_log(awkward_log(), path)
    rewritten(path, **{member: value})
    with pytest.raises(BadInput, match=says):
        load_log(path)


@pytest.mark.parametrize(
    ("shape", "kind", "says"),
    [
        ("(2**40,)", "<f8", "its header cannot be read"),
        (f"({1 << 40},)", "<f8", "declares 1,099,511,627,776 numbers of 64 bits, but has 24 bytes"),
        (f"({1 << 100},)", "<f8", r"declares [\d,]+ numbers of 64 bits, but has 24 bytes"),
        (f"({1 << 33},)", "|V0", r"must contain numbers, not \|V0"),
        (f"({1 << 20},)", f"({1 << 20},)<f8", "must contain numbers, not"),
        (f"(0, {1 << 62})", "<f8", "a one-dimensional list, not 2 dimensions"),
        ("(-3,)", "<f8", "declares -3 numbers"),
        ("(True,)", "<f8", "declares 1 numbers"),
        ("3", "<f8", "its header cannot be read"),
        ("()", "<f8", "not 0 dimensions"),
        ("(2,)", "<f8", "declares 2 numbers of 64 bits, but has 24 bytes"),
        (f"({'9' * 3000},)", "<f8", "declares"),
        ("(" * 900 + ")" * 900, "<f8", "its header"),
        ("(" * 9000, "<f8", "its header cannot be read"),
        ("(3,), 'more': 1", "<f8", "its header cannot be read"),
    ],
)
def test_a_header_that_does_not_fit_its_part_of_an_npz_is_refused_at_once(
    tmp_path: Path, shape: str, kind: str, says: str
) -> None:
    path = tmp_path / "log.npz"
    save_log(awkward_log(), path)
    header = f"{{'descr': '{kind}', 'fortran_order': True, 'shape': {shape}}}".encode()
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["times.npy"] = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(24)
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=rf"\(times\).*{says}"):
            load_log(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_an_npz_of_something_else_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(BadInput, match="no part 'format'"):
        load_log(path)


def test_the_ending_of_the_name_decides(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"ends in '\.pkl'"):
        load_log(tmp_path / "log.pkl")
    with pytest.raises(BadInput, match="no suffix"):
        save_log(sample_log(), tmp_path / "log")
    with pytest.raises(BadInput, match="no such file"):
        load_log(tmp_path / "absent.csv")


def test_the_story_does_not_change_the_content_hash(tmp_path: Path) -> None:
    log = awkward_log()
    save_log(replace(log, provenance=LogProvenance()), tmp_path / "plain.csv")
    assert load_log(tmp_path / "plain.csv").sha256 == log.sha256


def test_a_folder_that_is_not_there_is_named_with_the_file_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "log.npz"
    with pytest.raises(FileNotFoundError) as caught:
        save_log(awkward_log(), path)
    assert caught.value.filename == str(path)


def test_a_draft_that_a_killed_writer_left_does_not_stand_in_the_way(tmp_path: Path) -> None:
    with files.whole_file(tmp_path / "log.npz"):
        (draft,) = tmp_path.iterdir()
    draft.write_text("half")
    save_log(awkward_log(), tmp_path / "log.npz")
    assert load_log(tmp_path / "log.npz") == awkward_log()
    assert draft.read_text() == "half"


def test_options_are_json_from_birth(tmp_path: Path) -> None:
    story = LogProvenance(options={"window": (1, 2), "file": None})
    assert story.options == {"window": [1, 2], "file": None}
    save_log(replace(awkward_log(), provenance=story), tmp_path / "log.npz")
    assert load_log(tmp_path / "log.npz").provenance == story
    with pytest.raises(BadValue, match="must be JSON"):
        LogProvenance(options={"file": object()})


def test_counts_are_numbers_and_steps_are_texts() -> None:
    with pytest.raises(BadValue, match=r"Provenance\.counts: must be a mapping from names to whole numbers"):
        LogProvenance(counts={"rows": "many"})  # type: ignore[dict-item]  # the mistake under test
    with pytest.raises(BadValue, match=r"Provenance\.steps: must be a list of texts"):
        LogProvenance(steps=(3,))  # type: ignore[arg-type]  # the mistake under test


def test_a_source_with_an_odd_name_is_shown_readably(tmp_path: Path) -> None:
    path = tmp_path / "a\nb.csv"
    path.write_text("time,node,state\n0,a,idle\n")
    assert load_log(path).provenance.sources[0].name == "'a\\nb.csv'"


def test_records_that_are_no_log_yet_get_a_hint(tmp_path: Path) -> None:
    (tmp_path / "jobs.sacct").write_text("JobID|Start|End|NodeList\n")
    with pytest.raises(BadInput, match=r"its name ends in '\.sacct' .bftrain import converts a scheduler's records"):
        load_log(tmp_path / "jobs.sacct")


@pytest.mark.parametrize("depth", [70, 900, 5000])
def test_a_provenance_nested_deeper_than_options_are_is_refused(tmp_path: Path, depth: int) -> None:
    options = f'{{"a":{"[" * depth}{"]" * depth}}}'
    path = tmp_path / "log.csv"
    path.write_text(f'# provenance: {{"options":{options}}}\ntime,node,state\n0,n1,idle\n1,n1,busy\n')
    with pytest.raises(BadInput, match=r"log\.csv:1: .*(deep|too many levels)"):
        load_log(path)


def write_archive(path: Path, count: int, packing: int = zipfile.ZIP_DEFLATED) -> None:
    """Write an ``.npz`` log with so many changes, all of them zeros."""
    columns = {
        **{
            name: np.frombuffer(text, np.uint8)
            for name, text in (("format", b"bftrain event log 1"), ("provenance", b"{}"))
        },
        "node_names": np.frombuffer(b"n1", np.uint8),
        "end_s": np.array([1.0]),
        "times": np.array([0.0]),
        "offsets": np.array([0, count]),
        "nodes": np.zeros(count, np.int32),
        "states": np.zeros(count, np.int8),
    }
    with zipfile.ZipFile(path, "w", packing, compresslevel=1) as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, column)


def test_an_archive_that_unpacks_to_far_more_than_logs_do_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    write_archive(path, 40_000_000)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match=r"log\.npz: unpacks to more than [\d,]+ bytes, .*pack it with zip -0"):
            load_log(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_an_archive_packed_as_no_log_is_refused(tmp_path: Path) -> None:
    write_archive(tmp_path / "log.npz", 100, zipfile.ZIP_BZIP2)
    with pytest.raises(BadInput, match="unusual compression"):
        load_log(tmp_path / "log.npz")
