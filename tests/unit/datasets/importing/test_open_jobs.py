"""Jobs whose start and end stand in different rows."""

from __future__ import annotations

from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.job_columns import file_and_line, place_of
from bftrain_datasets.importing.open_jobs import MOST_ENDED, OpenJob, OpenJobTable


def job(name: str, start_s: float, nodes: str = "n1", *also: str) -> OpenJob:
    """Make a job that starts in the line of its time."""
    return OpenJob(job=name, start_s=start_s, nodes=nodes, queue="", place=place_of(1, int(start_s)), also=also)


def opened(*jobs: OpenJob) -> RecordIntake:
    intake = RecordIntake()
    intake.begin_file("log")
    for each in jobs:
        intake.row(each.place)
        assert intake.open_jobs.begin(each)
        intake.use()
    return intake


def stays(intake: RecordIntake) -> list[tuple[float, float]]:
    """Close the intake and give start and end of every job."""
    intake.close()
    assert intake.rows().read == intake.rows().used + sum(intake.rows().aside.values())
    columns = intake.stays.columns()
    return sorted(zip(columns.start.tolist(), columns.end.tolist(), strict=True))


def test_an_end_finds_its_start() -> None:
    jobs = OpenJobTable()
    assert jobs.begin(job("1", 10, "n1", "7_1", "7"))
    assert [each.job for each in jobs.named("7")] == ["1"]
    assert jobs.end("1", 9) is None
    known = jobs.end("1", 60)
    assert known is not None
    assert known.start_s == 10
    assert jobs.get("1") is None
    assert jobs.named("7") == []
    assert jobs.recently_ended("1")


def test_what_is_left_still_runs_or_ended_at_its_deadline() -> None:
    asked = job("2", 20)
    asked.may_end_s = 50
    assert stays(opened(job("1", 10), asked)) == [(10, float("inf")), (20, 50)]


def test_an_end_that_was_read_before_its_start() -> None:
    intake = opened(job("1", 10), job("2", 20), job("3", 30, "n3", "7"))
    for name, end_s in (("1", 300), ("1", 200), ("2", 15), ("7", 90)):
        intake.open_jobs.end_before_start(name, end_s, place_of(1, 5), counts=False)
    assert stays(intake) == [(10, 200), (20, float("inf")), (30, 90)]


def test_an_end_that_tells_its_start_was_counted_when_it_was_read() -> None:
    intake = opened(job("1", 10))
    intake.open_jobs.end_before_start("1", 200, place_of(1, 5), start_s=10, counts=False)
    assert stays(intake) == []
    intake = opened(job("1", 10))
    intake.open_jobs.end_before_start("1", 900, place_of(1, 5), start_s=500, counts=False)
    assert stays(intake) == [(10, 500)]  # it was started again


def test_an_end_whose_start_is_in_no_file() -> None:
    intake = opened()
    intake.row(5)
    intake.open_jobs.end_before_start("1", 200, place_of(1, 5))
    intake.use()
    assert stays(intake) == []
    assert intake.rows().aside == {"no_start": 1}
    (found,) = intake.findings()
    assert found.first == "log:5"


def test_starts_in_the_wrong_order_end_when_the_next_begins() -> None:
    for starts in ((100, 500, 900), (900, 100, 500), (500, 900, 100)):
        intake = opened(*(job("1", start_s, f"n{start_s}") for start_s in starts))
        assert stays(intake)[-1] == (900, float("inf"))
        assert {finding.name for finding in intake.findings()} == {"restarted"}


def test_jobs_that_ended_are_not_remembered_for_ever() -> None:
    jobs = OpenJobTable()
    for number in range(MOST_ENDED + 5):
        jobs.begin(job(str(number), 1))
        jobs.end(str(number), 2)
    assert not jobs.recently_ended("4")
    assert jobs.recently_ended("5")


def test_places() -> None:
    assert file_and_line(place_of(3, 1 << 39)) == (3, 1 << 39)
