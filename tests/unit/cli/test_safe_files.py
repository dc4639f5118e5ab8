"""Commands never replace finished results unasked, nor files that bftrain did not write."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from bftrain import generate_log, generate_mix, sample_log, save_log, save_tasks
from bftrain.result_folder import READY, FolderLock, ResultFolder
from tests.helpers.in_process import CommandLine

SWF = "".join(f"{job} {job} 0 100 1 -1 -1 1 200 -1 1 1 1 -1 1 -1 -1 -1\n" for job in range(1, 5))
SWEEP = 'log = "log.npz"\ntasks = "tasks.toml"\nyardsticks = false\n[grid]\nmax_tasks = [{}]\n'
CURVE = "curve = { nodes = [1], rate = [1.0] }"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with inputs of all commands, in which they run."""
    monkeypatch.chdir(tmp_path)
    save_log(generate_log(8, 0.1, 3), tmp_path / "log.npz")
    save_tasks(generate_mix(3, 3), tmp_path / "tasks.toml")
    (tmp_path / "gang.toml").write_text(f'[[task]]\nname = "a"\n{CURVE}\nmax_nodes = 1\nwork_samples = 100\n')
    (tmp_path / "jobs.swf").write_text(f"; MaxProcs: 4\n{SWF}", encoding="utf-8")
    (tmp_path / "one.toml").write_text(SWEEP.format(1), encoding="utf-8")
    (tmp_path / "two.toml").write_text(SWEEP.format(2), encoding="utf-8")
    return tmp_path


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


ONE_FILE = {
    "generate log -o new.npz --nodes 4 --days 0.1": "new.npz",
    "generate log -o new.csv --nodes 4 --days 0.1": "new.csv",
    "generate log -o new.parquet --nodes 4 --days 0.1": "new.parquet",
    "import jobs.swf -o new.npz --counts": "new.npz",
    "slice log.npz -o new.csv --nodes 0:4": "new.csv",
    "slice --anonymise log.npz -o new.npz": "new.npz",
    "generate tasks -o new.toml": "new.toml",
    "generate tasks -o new.csv": "new.csv",
    "generate from-trace jobs.swf -o new.toml": "new.toml",
    "journal export harvest.db -o new.npz": "new.npz",
    "journal export harvest.db -o log2.npz --tasks new.toml": "new.toml",
    "journal export harvest.db -o log2.npz --config new.toml": "new.toml",
}


@pytest.mark.usefixtures("journal")
@pytest.mark.parametrize("command", ONE_FILE)
def test_one_file(bftrain: CommandLine, place: Path, command: str) -> None:
    check(bftrain, command, place / ONE_FILE[command])


def check(bftrain: CommandLine, command: str, path: Path) -> None:
    """Check that a file of others is left alone, and that an empty one and one's own are replaced."""
    words = command.split()
    path.write_text("precious\n")
    before = content_of(path.parent)
    ended = bftrain(*words)
    assert (ended.code, ended.out) == (2, "")
    assert f"{path.name}: is not a" in ended.err
    assert "left unchanged" in ended.err
    assert content_of(path.parent) == before
    path.write_text("")
    assert bftrain(*words).code == 0
    assert path.stat().st_size > 0
    assert bftrain(*words).code == 0


def test_files_that_look_alike_are_not_ours(bftrain: CommandLine, place: Path) -> None:
    with zipfile.ZipFile(place / "new.npz", "w") as archive:
        archive.writestr("weights.npy", b"precious")
    assert bftrain("generate", "log", "-o", "new.npz").code == 2
    (place / "mine.toml").write_text('# made by me\n[[task]]\nname = "a"\n')
    assert bftrain("generate", "tasks", "-o", "mine.toml").code == 2
    parquet.write_table(pa.table({"mine": [1, 2]}), place / "new.parquet")
    assert bftrain("generate", "log", "-o", "new.parquet").code == 2


@pytest.mark.skipif(not find_spec("vl_convert"), reason="vl-convert-python is not installed")
def test_pictures_pages_and_traces(bftrain: CommandLine, place: Path) -> None:
    for name in ("one", "two"):
        assert bftrain("replay", "log.npz", "--tasks", "tasks.toml", "-o", name).code == 0
    check(bftrain, "report one -o new.json", place / "new.json")
    (place / "pictures").mkdir()
    check(bftrain, "report one --svg pictures", place / "pictures" / "sizes.svg")
    (place / "pictures" / "sizes.png").write_bytes(b"\x89PNG\r\n\x1a\n of another program")
    assert bftrain("report", "one", "--png", "pictures").code == 2
    (place / "page.html").write_text("mine")
    (place / "one" / "report.html").write_text("mine")
    for words in ("report one", "report one -o page.html", "compare one two -o page.html"):
        ended = bftrain(*words.split())
        assert (ended.code, ".html: is not a page that bftrain wrote" in ended.err) == (2, True)
    assert (place / "page.html").read_text() == (place / "one" / "report.html").read_text() == "mine"
    for path in (place / "page.html", place / "one" / "report.html"):
        path.unlink()
    for words in ("report one", "report one", "compare one two -o page.html", "compare one two -o page.html"):
        assert bftrain(*words.split()).code == 0


RESULTS = {
    "replay": "replay log.npz --tasks tasks.toml -o out",
    "cluster": "replay --cluster 4 --tasks tasks.toml -o out --until 3600",
    "rounds": "rounds --cluster 4 --tasks gang.toml -o out --round 60",
    "schedule": "schedule jobs.swf -o out",
}
results = pytest.mark.parametrize("command", RESULTS.values(), ids=RESULTS)


@results
def test_a_finished_result_is_replaced_only_if_that_is_asked_for(
    bftrain: CommandLine, place: Path, command: str
) -> None:
    (place / "out").mkdir()
    (place / "out" / "config.toml").write_text("mine", encoding="utf-8")
    ended = bftrain(*command.split(), "--overwrite")
    assert (ended.code, ended.out, "out/config.toml" in ended.err) == (2, "", True)
    assert content_of(place / "out") == {"config.toml": b"mine"}
    (place / "out" / "config.toml").unlink()
    with FolderLock(place / "out"):
        ended = bftrain(*command.split())
    assert (ended.code, f"out: is in use by process {os.getpid()} on " in ended.err) == (2, True)
    assert bftrain(*command.split()).code == 0
    before = content_of(place / "out")
    ended = bftrain(*command.split())
    assert (ended.code, ended.out, "--overwrite replaces it" in ended.err) == (2, "", True)
    assert content_of(place / "out") == before
    assert bftrain(*command.split(), "--overwrite").code == 0
    assert content_of(place / "out").keys() == before.keys()


@pytest.mark.parametrize(
    "command",
    [
        "replay log.npz --tasks tasks.toml -o out",
        "replay --cluster 2 --tasks gang.toml -o out",
        "rounds --cluster 2 --tasks gang.toml -o out",
    ],
)
def test_sigterm_is_ignored_until_the_folder_is_closed(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    handlers: list[object] = []
    close = ResultFolder.__exit__

    def closing(folder: ResultFolder, *error: Any) -> None:  # noqa: ANN401 - of any kind
        handlers.append(signal.getsignal(signal.SIGTERM))
        close(folder, *error)

    monkeypatch.setattr(ResultFolder, "__exit__", closing)
    ended = bftrain(*command.split())
    assert (ended.code, handlers) == (0, [signal.SIG_IGN]), ended.err


def test_the_inputs_in_the_folder_are_not_overwritten(bftrain: CommandLine, place: Path) -> None:
    before = content_of(place)
    ended = bftrain("replay", "log.npz", "--tasks", "tasks.toml", "-o", ".")
    assert (ended.code, "log.npz: was not written with a result" in ended.err) == (2, True)
    assert content_of(place) == before


@pytest.mark.filterwarnings("default::bftrain.errors.ResultWarning")
def test_a_folder_that_cannot_be_locked_is_written_with_a_warning(
    bftrain: CommandLine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    ended = bftrain(*RESULTS["rounds"].split(), "-q")
    assert (ended.code, (place / "out" / "summary.json").exists()) == (0, True)
    assert (ended.err.count("\n"), ended.err.startswith("warning: out: its file system has no locks")) == (1, True)


def test_a_page_is_not_drawn_into_a_folder_whose_result_is_being_replaced(bftrain: CommandLine, place: Path) -> None:
    assert bftrain(*RESULTS["rounds"].split()).code == 0
    (place / "out" / "report.html").unlink()
    with FolderLock(place / "out"):
        ended = bftrain("report", "out")
        assert (ended.code, "out: is in use by process " in ended.err) == (2, True)
        assert bftrain("report", "out", "-o", "page.html").code == 0
    (place / "out" / READY).mkdir()
    (place / "out" / "summary.json").rename(place / "out" / READY / "summary.json")  # killed before its last move
    assert bftrain("report", "out").code == 0
    assert {"report.html", "summary.json"} <= content_of(place / "out").keys()


def test_a_sweep_goes_on_and_spares_another_and_files_of_others(bftrain: CommandLine, place: Path) -> None:
    def sweep(name: str, *more: str) -> tuple[int, str]:
        ended = bftrain("sweep", name, "-o", "out", "--jobs", 1, *more)
        return ended.code, ended.err

    (place / "out").mkdir()
    for name in ("report.html", "table.csv", "workers.log", "points.jsonl"):
        (place / "out" / name).write_text("mine", encoding="utf-8")
        code, error = sweep("one.toml")
        assert (code, name in error, content_of(place / "out")) == (2, True, {name: b"mine"})
        (place / "out" / name).unlink()
    assert [sweep("one.toml")[0] for _ in range(2)] == [0, 0]
    before = content_of(place / "out")
    code, error = sweep("two.toml")
    assert (code, "--overwrite replaces it" in error, content_of(place / "out")) == (2, True, before)
    assert sweep("two.toml", "--overwrite")[0] == 0
    assert content_of(place / "out")["sweep.json"] != before["sweep.json"]


@pytest.fixture
def _short_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    short = sample_log().select(nodes=slice(0, 24))
    monkeypatch.setattr("bftrain_datasets.log.log_generator.sample_log", lambda _: short)


@pytest.mark.usefixtures("_short_demo")
def test_the_demo_replaces_itself_alone(bftrain: CommandLine, place: Path) -> None:
    assert "replacing" not in bftrain("demo", "--quick").err
    again = bftrain("demo", "--quick")
    assert (again.code, again.err.splitlines()[0]) == (0, "replacing the earlier demo in demo")
    written = {path for path in (place / "demo").iterdir() if path.is_file()}
    for path in written:
        path.unlink()  # as if killed before it had its inputs
    assert bftrain("demo", "--quick").code == 0
    assert {path for path in (place / "demo").iterdir() if path.is_file()} == written
    (place / "demo" / "tasks.toml").write_bytes((place / "tasks.toml").read_bytes())
    before = content_of(place / "demo" / "replay")
    ended = bftrain("demo", "--quick")
    assert (ended.code, "demo/tasks.toml: changed since bftrain wrote it" in ended.err) == (2, True)
    assert content_of(place / "demo" / "replay") == before


@pytest.mark.parametrize("inputs", [None, {}, {"inputs": []}, {"inputs": {"log": {}}}])
def test_the_demo_spares_a_replay_of_something_else(
    bftrain: CommandLine, place: Path, inputs: dict[str, object] | None
) -> None:
    folder = place / "demo" / "replay"
    if inputs is None:
        assert bftrain("replay", "log.npz", "--tasks", "tasks.toml", "-o", "demo/replay").code == 0
    else:
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps({"format": "bftrain replay 1", **inputs}), encoding="utf-8")
    before = content_of(folder)
    ended = bftrain("demo", "--quick")
    assert (ended.code, ended.err.startswith("bftrain: demo/replay: contains a finished replay")) == (2, True)
    assert (list((place / "demo").iterdir()), content_of(folder)) == ([folder], before)
