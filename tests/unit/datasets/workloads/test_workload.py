"""Jobs of neighbouring systems become tasks: every field has its place, and every row its account."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bftrain import (
    BadInput,
    BadValue,
    SpeedCurve,
    UnknownName,
    WorkloadOptions,
    import_workload,
    load_tasks,
    save_tasks,
)
from bftrain_datasets.importing.findings import HAZARDS
from bftrain_datasets.workloads import job as job_module
from bftrain_datasets.workloads import philly
from bftrain_datasets.workloads.workload import FORMATS, recognised
from tests.helpers.samples import swf_job
from tests.helpers.workloads import ARRIVALS, BLOX, GAVEL, PHILLY, SAMPLES, SWF, TABLE, gavel_line, philly_job, read

NET = SpeedCurve(nodes=(1, 2, 4, 8), rate=(10.0, 19.0, 15.0, 60.5))


def options_for(name: str) -> dict[str, Any]:
    return {"speeds": TABLE} if name == "gavel" else {}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_recognised_by_what_is_in_it(name: str) -> None:
    assert recognised(SAMPLES[name].encode()) == name.partition(" ")[0]
    assert recognised(b"\n" + SAMPLES[name].encode()) == name.partition(" ")[0]


def test_every_format_has_a_sample() -> None:
    assert {name.partition(" ")[0] for name in SAMPLES} == set(FORMATS)


@pytest.mark.parametrize("suffix", [".toml", ".csv"])
@pytest.mark.parametrize("name", SAMPLES)
def test_tasks_of_every_format_survive_their_file(tmp_path: Path, name: str, suffix: str) -> None:
    found = read(tmp_path, SAMPLES[name], **options_for(name))
    assert found.rows.read == found.rows.used == len(found.tasks) > 1
    path = tmp_path / f"tasks{suffix}"
    save_tasks(found.tasks, path)
    assert load_tasks(path) == found.tasks


@pytest.mark.parametrize("name", SAMPLES)
def test_a_packed_file_gives_the_same_tasks(tmp_path: Path, name: str) -> None:
    plain = read(tmp_path, SAMPLES[name], **options_for(name))
    packed = read(tmp_path, gzip.compress(SAMPLES[name].encode()), **options_for(name))
    assert packed.tasks == plain.tasks
    assert [each.name for each in packed.sources] == ["jobs", "speeds.json"][: len(packed.sources)]


def test_speeds_on_all_kinds_or_on_some(tmp_path: Path) -> None:
    first, second, third = read(tmp_path, GAVEL, speeds=TABLE).tasks
    assert second.curves == {"v100": SpeedCurve(nodes=(2,), rate=(19.0,)), "k80": SpeedCurve(nodes=(2,), rate=(4.0,))}
    assert list(first.curves) == list(third.curves) == ["v100"]  # they do not fit on the other
    elastic = read(tmp_path, GAVEL, speeds=TABLE, elastic=True).tasks[0]
    assert elastic.curves["k80"] == SpeedCurve(nodes=(1, 2, 4), rate=(0.0, 4.0, 6.0))
    assert (elastic.curve, elastic.min_nodes, elastic.max_nodes) == (NET, 1, 8)
    chosen = read(tmp_path, GAVEL, speeds=TABLE, kinds=("k80", "v100"))
    assert chosen.kinds == ("k80", "v100")
    assert chosen.tasks[1].curve.rate == (4.0,)  # the first that is named stands in
    one = read(tmp_path, GAVEL, speeds=TABLE, kinds=("k80",))
    assert (one.kinds, one.node_kind, one.tasks[0].curves) == ((), "k80", {})


def test_kinds_that_are_not_in_the_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no kind of node is called 'k8'"):
        read(tmp_path, GAVEL, speeds=TABLE, kinds=("v100", "k8"))
    with pytest.raises(BadValue, match="kinds: and node_kind are both set"):
        WorkloadOptions(kinds=("v100",), node_kind="k80")
    with pytest.raises(BadInput, match="--kinds needs jobs with models"):
        read(tmp_path, BLOX, kinds=("v100",))


def test_every_field_of_a_gavel_trace(tmp_path: Path) -> None:
    found = read(tmp_path, GAVEL, speeds=TABLE)
    first, second, third = found.tasks
    assert [task.name for task in found.tasks] == ["net-b16-0", "net-b16-1", "other-2"]
    assert (first.curve, first.min_nodes, first.max_nodes) == (SpeedCurve(nodes=(1,), rate=(10.0,)), 1, 1)
    assert (first.work_samples, first.submit_s, first.weight, first.deadline_s) == (1000.0, 0.0, 1.0, None)
    assert (second.curve, second.min_nodes, second.max_nodes) == (SpeedCurve(nodes=(2,), rate=(19.0,)), 2, 2)
    assert (second.work_samples, second.submit_s, second.weight) == (500.0, 60.5, 5.0)
    assert second.deadline_s == pytest.approx(60.5 + 2 * 500 / 19)
    assert third.curve.rate == (3.0,)
    assert (found.begin_s, found.node_kind, found.kinds, found.reference) == (0.0, None, ("v100", "k80"), "v100")


@pytest.mark.parametrize("fields", [6, 7, 9])
def test_older_gavel_traces_say_the_same(tmp_path: Path, fields: int) -> None:
    lines = [(100, 1, 7), (200, 4, 9.5)]
    old = read(tmp_path, "".join(gavel_line(*line, fields=fields) for line in lines), speeds=TABLE)
    new = read(tmp_path, "".join(gavel_line(*line) for line in lines), speeds=TABLE)
    assert old.tasks == new.tasks
    assert old.begin_s == 7.0
    assert [task.submit_s for task in old.tasks] == [0.0, 2.5]


def test_an_elastic_task_has_the_whole_curve_as_it_was_measured(tmp_path: Path) -> None:
    found = read(tmp_path, GAVEL, speeds=TABLE, elastic=True)
    first, second, third = found.tasks
    assert (first.curve, first.min_nodes, first.max_nodes) == (NET, 1, 8)
    assert second.deadline_s == pytest.approx(60.5 + 2 * 500 / 19)  # by the gang that it asked for
    assert (third.min_nodes, third.max_nodes) == (1, 1)


def test_where_a_model_does_not_fit_its_smallest_size_is_the_first_that_does(tmp_path: Path) -> None:
    (task,) = read(tmp_path, gavel_line(gang=1), speeds=TABLE, node_kind="k80", elastic=True).tasks
    assert (task.curve, task.min_nodes, task.max_nodes) == (SpeedCurve(nodes=(1, 2, 4), rate=(0.0, 4.0, 6.0)), 2, 4)


def test_deadlines_are_measured_on_the_reference_for_speeds_of_any_kind(tmp_path: Path) -> None:
    line = gavel_line(380, 2, 5, slo=1.5)
    on_v100 = read(tmp_path, line, speeds=TABLE, node_kind="k80")
    on_k80 = read(tmp_path, line, speeds=TABLE, node_kind="k80", reference="k80")
    assert (on_v100.node_kind, on_v100.reference, on_k80.reference) == ("k80", "v100", "k80")
    assert on_v100.tasks[0].deadline_s == pytest.approx(1.5 * 380 / 19)
    assert on_k80.tasks[0].deadline_s == pytest.approx(1.5 * 380 / 4)


def test_gpus_become_whole_nodes(tmp_path: Path) -> None:
    text = gavel_line(gang=8) + gavel_line(gang=2)
    eight, two = read(tmp_path, text, speeds=TABLE, per_node=4).tasks
    assert (eight.curve, eight.min_nodes) == (SpeedCurve(nodes=(2,), rate=(60.5,)), 2)
    assert (two.curve, two.min_nodes) == (SpeedCurve(nodes=(1,), rate=(19.0,)), 1)
    (elastic,) = read(tmp_path, gavel_line(gang=8), speeds=TABLE, per_node=4, elastic=True).tasks
    assert elastic.curve == SpeedCurve(nodes=(1, 2), rate=(15.0, 60.5))
    assert [task.min_nodes for task in read(tmp_path, BLOX, per_node=3).tasks] == [1, 2]


def test_the_job_log_of_philly(tmp_path: Path) -> None:
    found = read(tmp_path, PHILLY, zone=ZoneInfo("America/Los_Angeles"))
    assert [(task.name, task.min_nodes, task.max_nodes) for task in found.tasks] == [("app_1", 8, 8), ("app_2", 2, 2)]
    assert [task.work_samples for task in found.tasks] == [3600.0, 180.0]
    assert [task.submit_s for task in found.tasks] == [0.0, 30.0]
    assert {task.curve.rate for task in found.tasks} == {(1.0,)}
    assert {task.user for task in found.tasks} == {"u1"}
    assert found.begin_s == datetime(2017, 10, 7, 8, tzinfo=UTC).timestamp()


def test_another_number_of_gpus_in_a_later_attempt_is_counted(tmp_path: Path) -> None:
    times = ("2017-10-07 01:00:00", "2017-10-07 01:00:01")
    jobs = [philly_job("a", times[0], (*times, 4), (*times, 2)), philly_job("b", times[0], (*times, 3), (*times, 3))]
    found = read(tmp_path, json.dumps(jobs))
    assert [task.min_nodes for task in found.tasks] == [4, 3]
    found_rows = {each.name: (each.count, each.first) for each in found.findings}
    assert found_rows["gang_changed"] == (1, "jobs:1")
    assert set(found_rows) == {"gang_changed", "local_times"}


def test_a_job_log_may_have_one_job_a_line(tmp_path: Path) -> None:
    lines = "".join(json.dumps(entry) + "\n" for entry in json.loads(PHILLY))
    assert read(tmp_path, lines).tasks == read(tmp_path, PHILLY).tasks


def test_a_table_of_arrivals(tmp_path: Path) -> None:
    found = read(tmp_path, ARRIVALS)
    assert [(task.name, task.min_nodes, task.work_samples, task.submit_s, task.user) for task in found.tasks] == [
        ("job-1", 4, 2951.0, 0.0, "6214e9"),
        ("job-0", 1, 66.0, 2932.0, "11cb48"),
    ]
    assert {each.name: (each.count, each.first) for each in found.findings} == {
        "local_times": (2, "jobs:2"),
        "unsorted": (1, ""),
    }


def test_other_names_of_the_same_columns(tmp_path: Path) -> None:
    text = "user,gpu_num,submit_time,run_time,job_id\nann,2,10,60,j7\n\nbob,1.0,4,5,8\n"
    found = read(tmp_path, text)
    assert found.format == "philly"
    assert [(task.name, task.user, task.min_nodes) for task in found.tasks] == [("job-8", "bob", 1), ("j7", "ann", 2)]


def test_a_job_list_of_blox(tmp_path: Path) -> None:
    found = read(tmp_path, BLOX)
    assert (found.format, found.begin_s) == ("blox", 130.0)
    assert [(task.name, task.submit_s, task.work_samples, task.min_nodes) for task in found.tasks] == [
        ("job-0", 0.0, 35424.347, 1),
        ("job-1", 266.0, 4578.833, 4),
    ]
    kept = read(tmp_path, BLOX, begin_s=0.0)
    assert [task.submit_s for task in kept.tasks] == [130.0, 396.0]


def test_an_archives_log(tmp_path: Path) -> None:
    found = read(tmp_path, SWF)
    assert [(task.name, task.min_nodes, task.work_samples, task.submit_s, task.user) for task in found.tasks] == [
        ("job-1", 3, 100.0, 0.0, "7"),
        ("job-2", 1, 7.0, 50.0, "7"),
    ]
    assert found.begin_s == 1_600_000_000
    assert {each.name for each in found.findings} == {"procs_as_nodes"}
    found = read(tmp_path, SWF, per_node=1)
    assert [task.min_nodes for task in found.tasks] == [5, 1]
    assert found.findings == ()
    asked = read(tmp_path, swf_job(1, 0, 5, 100, -1, asked=4))
    assert (asked.tasks[0].min_nodes, [each.name for each in asked.findings]) == (4, ["requested_size"])


def test_jobs_handed_in_at_once_keep_the_order_of_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, "".join(gavel_line(steps, 1, 5) for steps in (3, 1, 2)), speeds=TABLE)
    assert [task.work_samples for task in found.tasks] == [3, 1, 2]
    assert found.findings == ()


def test_only_jobs_of_a_window_become_tasks(tmp_path: Path) -> None:
    text = "".join(gavel_line(1, 1, at) for at in (0, 10, 20, 30))
    for window, expected in (
        ((10.0, 30.0), [0, 10]),
        ((None, 10.0), [0]),
        ((20.0, None), [0, 10]),
        ((None, None), [0, 10, 20, 30]),
    ):
        found = read(tmp_path, text, speeds=TABLE, window=window, strict=True)  # to be outside is no doubt
        assert [task.submit_s for task in found.tasks] == expected
        assert found.rows.aside.get("outside_window", 0) == 4 - len(expected)
        assert found.begin_s == (window[0] or 0)


@pytest.mark.parametrize("name", SAMPLES)
def test_only_the_first_jobs_are_looked_at(tmp_path: Path, name: str) -> None:
    whole = read(tmp_path, SAMPLES[name], begin_s=0.0, **options_for(name))
    one = read(tmp_path, SAMPLES[name], begin_s=0.0, first=1, **options_for(name))
    assert one.rows.read == 1
    assert one.tasks[0] in whole.tasks
    assert {each.name for each in one.findings} == {each.name for each in whole.findings} - {"unsorted"}
    assert one.sources[0] == whole.sources[0]  # the whole file is hashed all the same


OK = gavel_line(1, 1, 7)
BAD_GAVEL = {
    "malformed": [
        "a\tb\n",
        gavel_line("many"),
        gavel_line("inf"),
        gavel_line(-5),
        gavel_line(gang="2.5"),
        gavel_line(weight=-1),
        gavel_line(kind=" "),
        gavel_line(slo="soon"),
    ],
    "no_work": [gavel_line(0)],
    "no_gpus": [gavel_line(gang=0)],
    "bad_count": [gavel_line(gang=10**12), gavel_line(gang=10**8)],
    "bad_time": [gavel_line(arrival=-1), gavel_line(arrival="nan"), gavel_line(arrival="1e300")],
    "unknown_speed": [gavel_line(gang=3), gavel_line(kind="Net"), gavel_line(gang=8, kind="Other")],
}
BAD_PHILLY = {
    "never_started": [philly_job("a", "2017-10-07 01:00:00")],
    "no_duration": [
        philly_job("b", "2017-10-07 01:00:00", ("2017-10-07 01:00:00", None, 1)),
        philly_job("c", "2017-10-07 01:00:00", (None, "2017-10-07 01:00:00", 1)),
        philly_job("d", "2017-10-07 01:00:00", ("None", "2017-10-07 01:00:00", 1)),
    ],
    "bad_time": [
        philly_job("e", "yesterday", ("2017-10-07 01:00:00", "2017-10-07 01:00:01", 1)),
        philly_job("f", "", ("2017-10-07 01:00:00", "2017-10-07 01:00:01", 1)),
    ],
    "no_gpus": [philly_job("g", "2017-10-07 01:00:00", ("2017-10-07 01:00:00", "2017-10-07 01:00:01", 0))],
    "no_work": [philly_job("h", "2017-10-07 01:00:00", ("2017-10-07 01:00:00", "2017-10-07 01:00:00", 1))],
    "backwards": [philly_job("i", "2017-10-07 01:00:00", ("2017-10-07 01:00:05", "2017-10-07 01:00:00", 1))],
    "malformed": [{"jobid": "j"}, 7, philly_job("k", 5), philly_job("", "2017-10-07 01:00:00", (1, 2, 3))],
    "same_name": [philly_job("app_1", "2017-10-07 01:00:00", ("2017-10-07 01:00:00", "2017-10-07 01:00:01", 1))],
}
BAD_ARRIVALS = {
    "malformed": ["1,5,7\n", "1,5,long,1\n", "1,5,7,a lot\n", '"1,5,7,1\n', " a\tb,5,7,1\n"],
    "bad_time": ["1,soon,7,1\n", "1,-5,7,1\n", "1,1e300,7,1\n"],
    "no_duration": ["1,5,,1\n"],
    "backwards": ["1,5,-7,1\n"],
    "no_work": ["1,5,0,1\n"],
    "no_gpus": ["1,5,7,0\n"],
    "bad_count": ["1,5,7,9999999999\n"],
    "same_name": ["0,5,7,1\n"],
}
BAD_SWF = {
    "malformed": ["1 2 3\n"],
    "step": [swf_job(5, 0, 0, 9, status=3)],
    "never_started": [swf_job(6, 0, -1, -1, status=5)],
    "no_duration": [swf_job(7, 0, 0, -1)],
    "no_work": [swf_job(8, 0, 0, 0)],
    "bad_time": [swf_job(9, "nan", 0, 9), swf_job(10, 0, 0, 1e12)],
    "bad_count": [swf_job(11, 0, 0, 9, 0), swf_job(12, 0, 0, 9, 10**9)],
    "backwards": [swf_job(13, 0, 0, -7)],
    "same_name": [swf_job(1, 0, 0, 9)],
}


def bad_file(name: str) -> tuple[str, dict[str, int]]:
    """A good beginning, then every bad row; and how many there are of each kind."""
    bad: dict[str, list[Any]] = {"gavel": BAD_GAVEL, "philly": BAD_PHILLY, "blox": BAD_ARRIVALS, "swf": BAD_SWF}[name]
    counts = {reason: len(rows) for reason, rows in bad.items()}
    rows = [row for those in bad.values() for row in those]
    if name == "philly":
        return json.dumps([*json.loads(PHILLY), *rows], indent=1), counts
    return {"gavel": OK, "blox": BLOX, "swf": SWF}[name] + "".join(rows), counts


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_that_cannot_be_used_is_counted_and_reported_with_its_line(tmp_path: Path, name: str) -> None:
    text, counts = bad_file(name)
    found = read(tmp_path, text, **options_for(name))
    assert found.rows.aside == counts
    assert found.rows.read == found.rows.used + sum(counts.values())
    assert {each.reason for each in found.refused} == set(counts)
    lines = text.splitlines()
    for each in found.refused:
        file, _, line = each.where.partition(":")
        assert file == "jobs"
        assert 1 <= int(line) <= len(lines)
        assert each.what
    places = [each.where for each in found.refused]
    assert len(set(places)) == len(places) == sum(counts.values())


def test_the_line_of_an_entry_of_a_job_log_is_the_one_on_which_it_begins(tmp_path: Path) -> None:
    text, _ = bad_file("philly")
    found = read(tmp_path, text)
    lines = text.splitlines()
    for each in found.refused:
        line = int(each.where.partition(":")[2])
        assert lines[line - 1].strip().rstrip(",") in {"{", "7"}
        assert lines[line - 2].strip() in {"},", "7,"}


@pytest.mark.parametrize(
    ("name", "reason", "row"),
    [
        *[("gavel", reason, row) for reason, rows in BAD_GAVEL.items() for row in rows],
        *[("blox", reason, row) for reason, rows in BAD_ARRIVALS.items() for row in rows],
        *[("swf", reason, row) for reason, rows in BAD_SWF.items() for row in rows],
    ],
)
def test_a_strict_import_ends_at_the_first_doubt(tmp_path: Path, name: str, reason: str, row: str) -> None:
    begin = {"gavel": OK, "blox": BLOX, "swf": SWF.replace("MaxProcs: 16", "MaxProcs: 8")}[name]
    line = len(begin.splitlines()) + 1
    if not HAZARDS[reason].doubt:
        assert read(tmp_path, begin + row, strict=True, **options_for(name)).rows.aside == {reason: 1}
        return
    with pytest.raises(BadInput) as refused:
        read(tmp_path, begin + row, strict=True, **options_for(name))
    assert refused.value.where == f"jobs:{line}"
    assert refused.value.what
    assert refused.value.fix


def test_strict_errors_name_the_field_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^jobs:2: gang: 'two' is not a whole number \(use a whole number\)$"):
        read(tmp_path, OK + gavel_line(gang="two"), speeds=TABLE, strict=True)
    with pytest.raises(
        BadInput, match=r"^jobs:2: arrival: 'noon' is not a number \(write arrival as a plain number\)$"
    ):
        read(tmp_path, OK + gavel_line(arrival="noon"), speeds=TABLE, strict=True)
    with pytest.raises(BadInput, match=r"local_times, 2 times: taken as UTC"):
        read(tmp_path, ARRIVALS, strict=True)


def test_a_task_that_the_nodes_can_never_hold_is_refused_by_name(tmp_path: Path) -> None:
    found = read(tmp_path, BLOX, nodes=2)
    assert [task.name for task in found.tasks] == ["job-0"]
    assert [(each.reason, each.where, each.what) for each in found.refused] == [
        ("too_large", "jobs:3", "'job-1' needs 4 nodes, more than 2")
    ]
    with pytest.raises(BadInput, match="'job-1' needs 4 nodes, more than 2"):
        read(tmp_path, BLOX, nodes=2, strict=True)
    elastic = read(tmp_path, gavel_line(gang=8), speeds=TABLE, elastic=True, nodes=2)
    assert elastic.tasks[0].max_nodes == 8  # it can run on one of the two


def test_what_does_not_fit_is_not_what_was_never_measured(tmp_path: Path) -> None:
    text = gavel_line(gang=2) + gavel_line(gang=1) + gavel_line(gang=8) + gavel_line(kind="Other")
    found = read(tmp_path, text, speeds=TABLE, node_kind="k80")
    assert found.rows.aside == {"does_not_fit": 2, "unknown_speed": 1}
    everything = read(tmp_path, text, speeds=TABLE, node_kind="k80", elastic=True)
    assert everything.rows.aside == {"does_not_fit": 1}


def test_words_are_kept_for_the_first_refusals_and_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "MOST_KEPT", 2)
    found = read(tmp_path, OK + gavel_line(0) * 5, speeds=TABLE)
    assert found.rows.aside == {"no_work": 5}
    assert [each.where for each in found.refused] == ["jobs:2", "jobs:3"]


def test_damage_to_the_file_is_found(tmp_path: Path) -> None:
    packed = gzip.compress(
        "".join(f"{BLOX.splitlines()[0]}\n" if not n else f"{n},{n},9,1\n" for n in range(9000)).encode()
    )
    found = read(tmp_path, packed[: len(packed) // 2])
    assert "truncated" in {each.name for each in found.findings}
    with pytest.raises(BadInput):
        read(tmp_path, packed[: len(packed) // 2], strict=True)


NO_ROW = r"jobs: no row becomes a task: 1 no_work; first at jobs:1: steps: 0"


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("", {}, "the file is empty"),
        ("hello\n", {}, "no reader recognises its beginning .*one of: gavel, blox, philly, swf"),
        (b"\x80\x04pickle", {}, "a pickled table .*a pair: pass JBND and JNPS"),
        (GAVEL, {}, "the steps of jobs, but no speeds .*--speeds"),
        (gavel_line(0), {"speeds": TABLE, "format": "gavel"}, NO_ROW),
        (BLOX.splitlines()[0] + "\n", {}, "no row becomes a task: there are none"),
        (BLOX, {"speeds": TABLE}, "--speeds needs jobs with models"),
        (BLOX, {"elastic": True}, "--elastic needs jobs with models"),
        (SWF, {"node_kind": "v100"}, "--node-kind needs jobs with models"),
        (GAVEL, {"speeds": TABLE, "node_kind": "v10"}, "no kind of node is called 'v10' .did you mean 'v100'"),
        (GAVEL, {"speeds": TABLE, "reference": "a100"}, "no kind of node is called 'a100'"),
        (BLOX, {"format": "slurm"}, "no format of jobs is called 'slurm'"),
        (BLOX, {"format": "gavel", "speeds": TABLE}, "3 malformed; first at jobs:1: 1 tab-separated fields"),
        ("a,b\n1,2\n", {"format": "philly"}, "jobs:1: no column for submit: arrival_s or .*docs/workloads.md"),
        (BLOX, {"begin_s": 1.6e9}, "its times count from zero, not from 1970 .*omit --log"),
        (PHILLY[:-9], {}, "jobs: not JSON: .*fetch the file again"),
        (PHILLY[:-1] + "," + "[" * 100_000 + "]" * 100_001, {}, "jobs: not JSON: .*recursion"),
        (BLOX, {"nodes": 0}, "WorkloadOptions.nodes: must be at least 1"),
        (BLOX, {"first": 0}, "WorkloadOptions.first: must be at least 1"),
        (BLOX, {"window": (1e6, None)}, "no row becomes a task: 2 outside_window"),
        (BLOX, {"per_node": -1}, "WorkloadOptions.per_node: must be at least 1"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, text: str | bytes, options: dict[str, Any], says: str) -> None:
    with pytest.raises((BadInput, BadValue, UnknownName), match=says):
        read(tmp_path, text, **options)


def test_a_job_log_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(philly, "LARGEST_BYTES", 100)
    with pytest.raises(BadInput, match="larger than a gigabyte"):
        read(tmp_path, PHILLY)


def test_a_log_can_say_what_times_count_from(tmp_path: Path) -> None:
    begin_s = datetime(2017, 10, 7, tzinfo=UTC).timestamp()
    found = read(tmp_path, PHILLY, begin_s=begin_s)
    assert [task.submit_s for task in found.tasks] == [3600.0, 3630.0]
    assert found.begin_s == begin_s


def test_how_much_has_been_read_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_text(BLOX)
    read_bytes: list[int] = []
    import_workload(path, WorkloadOptions(), tell=read_bytes.append)
    assert sum(read_bytes) == len(BLOX)
