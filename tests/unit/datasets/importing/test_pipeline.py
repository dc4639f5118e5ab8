"""From files to a checked log: which reader, in which order, with which story, and what looks wrong in the end."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import sys
import zipfile
from pathlib import Path

import pytest

import bftrain
from bftrain import BadInput, BrokenPlugin, ImportOptions, NodeState, UnknownName, load_log, save_log
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.pipeline import check_log, import_files, reader_for, suspicions
from bftrain_datasets.importing.raw_file import RawFile
from tests.helpers.records import finding, imported, kinds
from tests.helpers.transitions import log_from_transitions
from tests.unit.core import plugins

HEADER = "JobID|Start|End|NodeList|State|Partition\n"
DAY = 1_700_000_000
IDLE, BUSY, DOWN = NodeState.IDLE, NodeState.BUSY, NodeState.DOWN


def job(number: int, start: int, end: int, nodes: str, state: str = "COMPLETED", queue: str = "main") -> str:
    return f"{number}|{DAY + start}|{DAY + end}|{nodes}|{state}|{queue}\n"


MONDAY = HEADER + job(1, 0, 100, "n1") + job(2, 20, 90, "n[2-3]")
TUESDAY = HEADER + job(3, 120, 300, "n3") + job(2, 20, 90, "n[2-3]") + job(4, 130, 250, "n10")
WEDNESDAY = HEADER + job(5, 290, 400, "n[1-2]") + job(6, 350, 350, "n1")


def test_the_order_of_files_does_not_matter(tmp_path: Path) -> None:
    made = [imported(tmp_path, *texts) for texts in itertools.permutations((MONDAY, TUESDAY, WEDNESDAY))]
    assert len({each.log.sha256 for each in made}) == 1
    for each in made:
        assert each.log.node_names == ("n1", "n2", "n3", "n10")
        assert (each.rows.read, each.rows.used) == (7, 5)
        assert each.rows.aside == {"told_before": 1, "zero_length": 1}  # job 2 was dumped on both days
        assert finding(each, "told_before").node_s == 140
        assert kinds(each) - {"unsorted"} == kinds(made[0]) - {"unsorted"}


def test_a_log_tells_where_it_came_from(tmp_path: Path) -> None:
    made = imported(tmp_path, MONDAY, TUESDAY, min_gap_s=5.0, preemptible=("scavenge",))
    story = made.log.provenance
    assert story.made_by == "reader sacct"
    assert [source.name for source in story.sources] == ["0", "1"]
    assert [source.sha256 for source in story.sources] == [
        hashlib.sha256(text.encode()).hexdigest() for text in (MONDAY, TUESDAY)
    ]
    assert story.options == {"min_gap_s": 5.0, "preemptible": ["scavenge"]}
    assert story.counts["rows_read"] == story.counts["rows_used"] + story.counts["rows_aside_told_before"] == 5
    assert story.findings == made.findings
    assert str(tmp_path) not in repr(story)


def test_the_same_bytes_give_the_same_log_wherever_they_lie(tmp_path: Path) -> None:
    saved = []
    for folder in ("a", "a much longer name of a folder"):
        (tmp_path / folder).mkdir()
        made = imported(tmp_path / folder, MONDAY, WEDNESDAY)
        save_log(made.log, tmp_path / folder / "log.npz")
        saved.append((tmp_path / folder / "log.npz").read_bytes())
    assert saved[0] == saved[1]


@pytest.mark.parametrize("name", ["log.npz", "log.csv"])
def test_a_saved_log_tells_the_same_findings(tmp_path: Path, name: str) -> None:
    made = imported(tmp_path, MONDAY, TUESDAY, min_gap_s=50.0, down=((DAY + 50, DAY + 60),))
    save_log(made.log, tmp_path / name)
    checked = check_log(load_log(tmp_path / name), 3600.0)
    assert checked.findings == made.findings
    assert checked.doubts == made.doubts
    assert checked.rows == made.rows
    assert checked.format == "reader sacct"


def test_a_log_is_checked_as_it_is_now(tmp_path: Path) -> None:
    """What was suspected once may have been cut off since, and what was well then may look odd by itself."""
    text = HEADER + job(1, 0, 100, "n1") + job(2, 9000, 9100, "n[1-2]")
    made = imported(tmp_path, text)
    assert "suspected_downtime" in kinds(made)
    assert "suspected_downtime" not in kinds(
        type(made)(made.log, "", made.rows, check_log(made.log, 10_000.0).findings)
    )
    first = made.log.select(window=(DAY, DAY + 100))
    names = {each.name for each in check_log(first, 3600.0).findings}
    assert "suspected_downtime" not in names
    assert "always_idle" in names


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MONDAY.encode())))
    piped = import_files([Path("-")], ImportOptions())
    assert piped.log.sha256 == imported(tmp_path, MONDAY).log.sha256
    assert piped.log.provenance.sources[0].name == "stdin"
    with pytest.raises(BadInput, match=r"stdin: named more than once, and it can be read only once .name - once"):
        import_files([Path("-"), Path("-")], ImportOptions())


def test_the_names_of_a_large_machine_are_listed_a_few_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A list of a million names takes as long as they are many: one for each node would take an hour."""
    listed: list[int] = []

    def node_names(intake: RecordIntake) -> tuple[str, ...]:
        listed.append(intake.size)
        return tuple(intake.machine.places)

    monkeypatch.setattr(RecordIntake, "node_names", property(node_names))
    made = imported(tmp_path, HEADER + job(1, 0, 100, "n[1-500]") + job(2, 200, 300, "n[2-500]"))
    assert len(made.log.node_names) == 500
    assert 0 < len(listed) < 10


def test_progress_adds_up_to_the_size_of_the_files(tmp_path: Path) -> None:
    imported(tmp_path, MONDAY, TUESDAY)
    read_bytes: list[int] = []
    import_files([tmp_path / "0", tmp_path / "1"], ImportOptions(), tell=read_bytes.append)
    assert sum(read_bytes) == len(MONDAY) + len(TUESDAY)


def test_python_can_import_too(tmp_path: Path) -> None:
    made = imported(tmp_path, MONDAY, TUESDAY, min_gap_s=5.0)
    again = bftrain.import_logs(tmp_path / "0", str(tmp_path / "1"), options=bftrain.ImportOptions(min_gap_s=5.0))
    assert isinstance(again, bftrain.Imported)
    assert again.log == made.log
    assert bftrain.import_logs(tmp_path / "0").log.provenance.options == {}


def test_nothing_to_read_is_said() -> None:
    with pytest.raises(BadInput, match="no file to read"):
        import_files([], ImportOptions())


def test_formats_are_not_mixed(tmp_path: Path) -> None:
    swf = "; UnixStartTime: 0\n" + " ".join(["1", str(DAY), "0", "10", "1", *["-1"] * 13, "{a}"]) + "\n"
    with pytest.raises(BadInput, match=r"/1: this file is swf, the files before are sacct .import one format"):
        imported(tmp_path, MONDAY, swf)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the file is empty"),
        (b"  \n\n\t\n", "the file is empty"),
        (b"PK\x03\x04 times.npy", "this may be a log already .try bftrain inspect"),
        (b"PAR1 and so on", "incomplete Parquet file"),
        (b"\x7fELF\0\0\0", "a binary file of unknown format .set the format by --format, one of: sacct, "),
        (b"Dear Sir or Madam,\n", "no reader recognises its beginning"),
    ],
)
def test_what_no_reader_knows(tmp_path: Path, content: bytes, what: str) -> None:
    with pytest.raises(BadInput, match=f"/0: .*{what}"):
        imported(tmp_path, content)


def test_a_format_can_be_named(tmp_path: Path) -> None:
    assert imported(tmp_path, MONDAY, format="sacct").format == "sacct"
    with pytest.raises(UnknownName, match=r"no reader is called 'sact' .did you mean 'sacct'"):
        imported(tmp_path, MONDAY, format="sact")
    with pytest.raises(BadInput, match=r"no row describes|unknown columns"):
        imported(tmp_path, "Dear Sir or Madam,\n", format="sacct")


class Stranger:
    """A reader that another package brings: one job a line, `START END NODES`."""

    name = "stranger"
    about = "a scheduler of our own"

    def recognises(self, head: bytes) -> bool:
        return head.startswith(b"#stranger")

    def read(self, file: RawFile, intake: RecordIntake) -> None:
        for number, line in file.lines():
            if not line.startswith("#"):
                intake.row(number)
                start, end, nodes = line.split()
                intake.job(line, float(start), float(end), nodes)


class Rude(Stranger):
    """One that cannot even look."""

    name = "rude"

    def recognises(self, head: bytes) -> bool:
        raise ZeroDivisionError(head)


stranger, rude = Stranger(), Rude()
HERE = __name__


def test_readers_of_other_packages_are_asked_after_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plugins.register(monkeypatch, ("reader", "stranger", f"{HERE}:stranger"))
    made = imported(tmp_path, f"#stranger\n{DAY} {DAY + 5} n[1-2]\n")
    assert (made.format, made.log.node_names) == ("stranger", ("n1", "n2"))
    assert reader_for(b"", "f", "stranger").about == "a scheduler of our own"


def test_a_broken_reader_of_others_stands_in_nobodys_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = [("reader", "absent", "no_such_module:x"), ("reader", "rude", f"{HERE}:rude")]
    plugins.register(monkeypatch, *broken, ("reader", "stranger", f"{HERE}:stranger"))
    assert imported(tmp_path, f"#stranger\n{DAY} {DAY + 5} n1\n").format == "stranger"
    with pytest.raises(BrokenPlugin, match="no_such_module"):
        imported(tmp_path, "#stranger\n", format="absent")


def test_an_error_in_a_third_party_reader_is_reported_as_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plugins.register(monkeypatch, ("reader", "stranger", f"{HERE}:stranger"))
    with pytest.raises(BrokenPlugin, match=r"reader 'stranger', .*/0: raised ValueError: not enough values"):
        imported(tmp_path, "#stranger\n5 6\n")


def found_in(
    log_end: float, *changes: tuple[float, str, NodeState], after_s: float = 3600.0
) -> dict[str, tuple[int, float]]:
    log = log_from_transitions(changes, node_names=("a", "b"), begin_s=DAY, end_s=DAY + log_end)
    return {each.name: (each.count, each.node_s) for each in suspicions(log, after_s)}


def test_a_machine_that_is_idle_for_long_may_have_been_down() -> None:
    quiet = [(DAY + 10, "a", IDLE), (DAY + 20, "b", IDLE), (DAY + 3621, "a", BUSY)]
    assert found_in(9000, *quiet) == {"suspected_downtime": (1, 3601.0 * 2)}
    assert found_in(9000, *quiet, after_s=3601.0) == {}


def test_a_machine_that_is_known_to_be_down_is_not_suspected() -> None:
    assert found_in(9000, (DAY + 10, "a", DOWN), (DAY + 10, "b", DOWN)) == {}
    assert found_in(9000, (DAY + 10, "a", IDLE), (DAY + 10, "b", DOWN)) == {"suspected_downtime": (1, 8990.0 * 2)}


def test_nodes_that_no_job_ever_used() -> None:
    assert found_in(100, (DAY, "a", IDLE), (DAY + 5, "b", IDLE)) == {"always_idle": (1, 100.0)}
    assert found_in(100, (DAY, "a", IDLE), (DAY + 100, "a", BUSY)) == {}
    assert found_in(0, (DAY, "a", IDLE)) == {}


def test_times_that_count_from_zero() -> None:
    log = log_from_transitions([(5.0, "a", IDLE), (9.0, "a", BUSY)])
    assert [each.name for each in suspicions(log, 3600.0)] == ["relative_times"]


def test_declared_and_suspected_downtime(tmp_path: Path) -> None:
    text = HEADER + job(1, 0, 100, "n1") + job(2, 9000, 9100, "n[1-2]")
    made = imported(tmp_path, text, down=((None, DAY + 50),))
    assert finding(made, "marked_down").node_s == 50  # n2; n1 was busy, and is down now too
    assert made.log.states_at(DAY).tolist() == [DOWN, DOWN]
    made = imported(tmp_path, text, down_suspected=True)
    assert finding(made, "marked_down").node_s == 8900 * 2
    assert "suspected_downtime" not in kinds(made)
    assert made.log.idle_node_s == 100


def test_short_gaps_are_closed(tmp_path: Path) -> None:
    text = HEADER + job(1, 0, 100, "n1") + job(2, 103, 200, "n1") + job(3, 220, 300, "n1")
    made = imported(tmp_path, text, min_gap_s=5.0)
    assert finding(made, "short_gaps").count == 1
    assert finding(made, "short_gaps").node_s == 3.0
    assert made.log.idle_node_s == 20.0
    assert "short_gaps" not in kinds(imported(tmp_path, text, min_gap_s=3.0))


def test_the_source_of_times_is_reported(tmp_path: Path) -> None:
    text = HEADER + "1|2025-10-26T01:00:00|2025-10-26T02:30:00|n1|COMPLETED|main\n"
    assert finding(imported(tmp_path, text), "local_times").count == 2
    berlin = imported(tmp_path, text, timezone="Europe/Berlin")
    assert finding(berlin, "twice_times").count == 1
    assert "local_times" not in kinds(berlin)
    assert berlin.log.span_s == 5400
    ms = imported(tmp_path, HEADER + f"1|{DAY}000|{DAY}500|n1|COMPLETED|main\n")
    assert (finding(ms, "epoch_ms").count, ms.log.span_s) == (2, 0.5)


JOBS = "job_id,start,end,nodes\n1,1600000000,1600000500,n1\n"
PAGE = "<!DOCTYPE html>\n<html><body><table><tr><td>job</td></tr></table></body></html>\n"


def zipped(content: bytes, name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (zipped(JOBS.encode(), "jobs.csv"), "a zip archive .unpack it first: unzip -p FILE"),
        (gzip.compress(zipped(JOBS.encode(), "jobs.csv")), "packed twice .unpack it once"),
        (zipped(b"<xml/>", "xl/workbook.xml"), "a workbook of a spreadsheet program .save its sheet as CSV"),
        (PAGE.encode(), r"a page of the web .HTML., not a file of records .save its table as CSV"),
        (b"[]", "JSON without a job record .use objects"),
        (b"[1, 2]", "JSON without a job record .use objects"),
        (JOBS.encode("utf-16-be"), "written in UTF-16 .convert it to UTF-8"),
        (JOBS.encode("utf-16-le"), "written in UTF-16 .convert it to UTF-8"),
        (
            JOBS.replace("nodes", "nodes,start").replace("n1", "n1,1600000400").encode(),
            "two columns have the name 'start' .rename one of them",
        ),
        (
            JOBS.replace("1600000000", "13/09/2020 12:00").encode(),
            "1 bad_time .write times as epochs or as 2020-09-13T",
        ),
        (
            JOBS.replace("1600000000", "9/13/2020 1:00 PM").encode(),
            "1 bad_time .write times as epochs or as 2020-09-13T",
        ),
    ],
)
def test_files_that_cannot_be_read_say_what_they_are_and_what_helps(tmp_path: Path, content: bytes, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        imported(tmp_path, content)
