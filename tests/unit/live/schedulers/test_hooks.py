"""Hooks of schedulers and their spool: installed, read once and whole, trusted only as far as they may be."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from bftrain import NotAvailable
from tests.helpers.fake_pbs_module import EVENTS
from tests.helpers.fake_pbs_module import run_hook as run_pbs_hook
from tests.helpers.schedulers import READER, HookListener, HookNews, HookSpool, hook_text, read_line
from tests.helpers.site_data import site_data
from tests.helpers.timeouts import set_timeouts

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
EPILOG = {
    "SLURM_SCRIPT_CONTEXT": "epilog_slurmctld",
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_NODELIST": "nid[0001-0003]",
    "SLURM_JOB_PARTITION": "main",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_NAME": "$(touch broken)\nbftrain1 end 99 0 victim main 0 .",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "spool"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def reading(folder: Path) -> HookSpool:
    """Return an open spool. Other users may write where the folders of pytest are; tests below cover that."""
    opened = HookSpool(folder)
    opened.open()
    return opened


def put(folder: Path, name: str, text: str, *, mode: int = 0o644) -> Path:
    path, unfinished = folder / name, folder / f".{name}"
    unfinished.write_text(text)
    unfinished.chmod(mode)
    return unfinished.rename(path)  # a reader in a thread may take it at once


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def run_hook(folder: Path, *shell: str, **env: str) -> int:
    script = folder.parent / "hook"
    script.write_text(hook_text("slurm", folder))
    done = subprocess.run([*shell, str(script)], env=env, cwd=folder.parent, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"", b"")
    return done.returncode


@pytest.mark.parametrize("shell", SHELLS)
def test_the_hook_tells_of_an_end(folder: Path, reading: HookSpool, shell: str) -> None:
    words = (shell, "sh") if shell == "busybox" else (shell,)
    assert run_hook(folder, *words, **EPILOG) == 0
    (heard,) = reading.look(0.0)
    assert heard.what == "end"
    assert (heard.job, heard.restart, heard.nodes) == ("12", 0, ("nid0001", "nid0002", "nid0003"))
    assert not (folder.parent / "broken").exists()
    assert names(folder) == {READER}, "what was read is gone"


def test_the_hook_tells_of_a_start_and_of_what_jobcomp_knows(folder: Path, reading: HookSpool) -> None:
    run_hook(folder, "sh", **{**EPILOG, "SLURM_SCRIPT_CONTEXT": "prolog_slurmctld", "SLURM_JOB_RESTART_COUNT": "2"})
    (started,) = reading.look(0.0)
    assert (started.what, started.restart) == ("start", 2)
    run_hook(folder, "sh", JOBID="7", NODES="a1", PARTITION="main", UID="0", JOBNAME="x\ny")
    (ended,) = reading.look(1.0)
    assert (ended.what, ended.job, ended.nodes) == ("end", "7", ("a1",))


@pytest.mark.parametrize(
    "broken",
    [
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_ID": "1 2"},
        {"SLURM_JOB_ID": "../../up"},
        {"SLURM_JOB_ID": "$(touch broken)"},
        {"SLURM_JOB_NODELIST": ""},
        {"SLURM_JOB_NODELIST": "(null)"},
        {"SLURM_JOB_NODELIST": "a b"},
        {"SLURM_JOB_NODELIST": "a\nbftrain1 end 99 0 victim main 0 ."},
        {"SLURM_JOB_PARTITION": "%s%n%s"},
    ],
)
def test_the_hook_never_fails_and_odd_words_do_no_harm(
    folder: Path, reading: HookSpool, broken: dict[str, str]
) -> None:
    assert run_hook(folder, "sh", **{**EPILOG, **broken}) == 0
    assert all(one.job == "12" and "victim" not in one.nodes for one in reading.look(0.0))
    reading.look(60.0)
    assert names(folder) == {READER}
    assert not (folder.parent / "broken").exists()


def test_the_hook_ends_well_without_a_reader_or_a_folder_or_room(folder: Path, tmp_path: Path) -> None:
    assert run_hook(folder, "sh", **EPILOG) == 0
    assert names(folder) == set(), "without a reader nothing piles up"
    assert run_hook(tmp_path / "missing", "sh", **EPILOG) == 0
    put(tmp_path, "file", "")
    assert run_hook(tmp_path / "file", "sh", **EPILOG) == 0
    (folder / READER).touch()
    script = hook_text("slurm", folder).replace('>"$spool/$what.${slot:-$job}"', ">/dev/full")
    full = subprocess.run(["sh", "-c", script], env=EPILOG, capture_output=True, check=False)
    assert (full.returncode, full.stdout, full.stderr) == (0, b"", b"")


def test_what_hooks_write_without_a_reader_is_bounded(folder: Path, reading: HookSpool) -> None:
    """A daemon that was killed leaves its marker behind."""
    jobs = ["12", "1012", "2012", "4711", "5711", "999012"]
    for job in jobs:
        run_hook(folder, "sh", **{**EPILOG, "SLURM_JOB_ID": job})
    assert names(folder) == {READER, "end.12", "end.012", "end.711"}
    assert [one.job for one in reading.look(0.0)] == ["12", "1012", "4711"], (
        "the first is kept, the next look finds out"
    )


def test_events_are_read_once_in_the_order_of_their_times(folder: Path, reading: HookSpool) -> None:
    for number, at_s in (("2", 20), ("1", 10), ("3", 30)):
        os.utime(put(folder, f"end.{number}", f"bftrain1 end {number} 0 n{number} main 0 .\n"), (at_s, at_s))
    assert [one.job for one in reading.look(0.0)] == ["1", "2", "3"]
    put(folder, "again", "bftrain1 end 2 0 n2 main 0 .\n")
    put(folder, "requeued", "bftrain1 end 2 1 n2 main 0 .\n")
    put(folder, "start", "bftrain1 start 4 0 a,b main 0 .\n")
    put(folder, "two", "bftrain1 end 5 0 n1 main 0 .\nbftrain1 end 6 0 n1 main 0 .\n")
    put(folder, "zbs", "bftrain1 ending 4 0 pbs[0]+pbs[1]+ q  .\n")
    assert [(one.what, one.job, one.restart, one.nodes) for one in reading.look(0.1)] == [
        ("end", "2", 1, ("n2",)),
        ("start", "4", 0, ("a", "b")),
        ("ending", "4", 0, ("pbs[0]", "pbs[1]")),
    ]
    assert names(folder) == {READER}


def test_a_part_waits_for_the_rest_but_not_for_ever(folder: Path, reading: HookSpool) -> None:
    put(folder, "half", "bftrain1 end 1 0 nid[00")
    put(folder, "none", "")
    assert reading.look(0.0) == reading.look(0.1) == []
    put(folder, "half", "bftrain1 end 1 0 nid[0001-0002] main 0 .\n")
    assert [one.nodes for one in reading.look(0.2)] == [("nid0001", "nid0002")]
    assert reading.look(20.0) == []
    assert "never completed" in reading.problem
    assert names(folder) == {READER}


def test_what_came_before_we_read_is_old(folder: Path) -> None:
    put(folder, "end.1", "bftrain1 end 1 0 n1 main 0 .\n")
    late = HookSpool(folder)
    late.open()
    assert late.look(0.0) == []
    put(folder, "end.2", "bftrain1 end 2 0 n1 main 0 .\n")
    assert [one.job for one in late.look(1.0)] == ["2"]
    late.close()
    assert names(folder) == set()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "bftrain2 end 1 0 n1 main 0 .",
        "bftrain1 stop 1 0 n1 main 0 .",
        "bftrain1 end 1 0 n1 main 0",
        "bftrain1 end 1 0 n1 main 0 . more",
        "bftrain1 end 1 -1 n1 main 0 .",
        "bftrain1 end 1 0 n[1-99999999] main 0 .",
        "bftrain1 end 1 0 @all main 0 .",
        "bftrain1 end 1 0  main 0 .",
        "bftrain1 end a/b 0 n1 main 0 .",
        "bftrain1 end 1 0 n\u00e4 main 0 .",
        "x" * 100_000,
    ],
)
def test_other_lines_are_none(line: str) -> None:
    assert read_line(line) is None


def test_files_of_strangers_are_not_believed(folder: Path) -> None:
    strict = HookSpool(folder)
    strict._trusted = frozenset()  # noqa: SLF001 - the files of tests are the user's own
    strict.open()
    put(folder, "theirs", "bftrain1 start 1 0 n1 main 0 .\n")
    assert strict.look(0.0) == []
    assert f"belongs to user {os.geteuid()}" in strict.problem
    assert not (folder / "theirs").exists()


def test_odd_files_are_not_believed(folder: Path, reading: HookSpool, tmp_path: Path) -> None:
    good = "bftrain1 start 1 0 n1 main 0 .\n"
    elsewhere = put(tmp_path, "elsewhere", good)
    put(folder, "open", good, mode=0o666)
    (folder / "link").symlink_to(elsewhere)
    os.link(elsewhere, folder / "twin")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    put(folder, "large", good * 20_000)
    put(folder, "binary", "\0" * 100)
    begun = time.monotonic()
    assert reading.look(0.0) == []
    assert time.monotonic() - begun < 30, "a pipe is no place to wait"
    assert reading.problem
    assert elsewhere.read_text() == good
    left = names(folder) - {READER, "folder", "binary"}
    assert left == set(), "and they do not stay"
    put(folder, "fine", good)
    assert len(reading.look(1.0)) == 1


@pytest.mark.parametrize("mode", [0o777, 0o701, 0o704, 0o702])
def test_a_folder_open_to_all_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(NotAvailable, match="open to all users"):
        HookSpool(folder).open()


def test_a_folder_that_others_could_replace_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "shared" / "spool"
    inside.mkdir(parents=True, mode=0o700)
    inside.parent.chmod(0o777)
    with pytest.raises(NotAvailable, match="other users could replace it"):
        HookSpool(inside).open()
    inside.parent.chmod(0o755)
    HookSpool(inside).open()


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[HookNews, float]] = []
        self.notes: list[str] = []
        self.rang = threading.Event()

    def hear(self, heard: Sequence[HookNews]) -> None:
        self.heard += [(one, time.time()) for one in heard]
        self.rang.set()

    def wait(self) -> None:
        assert self.rang.wait(10)
        self.rang.clear()


def test_a_thread_hears_within_a_blink_and_survives_a_folder_that_goes(folder: Path) -> None:
    ear = Ear()
    listener = HookListener(HookSpool(folder), ear.hear, ear.notes.append)
    listener.start()
    try:
        delays = []
        for number in range(10):
            time.sleep(0.013)
            begun = time.time()
            put(folder, f"end.{number}", f"bftrain1 end {number} 0 n1 main 0 .\n")
            ear.wait()
            delays.append(ear.heard[-1][1] - begun)
        assert min(delays) < 0.5
        shutil.rmtree(folder)
        deadline = time.monotonic() + 10
        while not ear.notes and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "cannot be read" in ear.notes[0]
        folder.mkdir(mode=0o700)
        put(folder, "end.99", "bftrain1 end 99 0 n1 main 0 .\n")
        ear.wait()
        assert ear.heard[-1][0].job == "99"
    finally:
        listener.stop()


def test_a_folder_that_cannot_be_used_is_tried_again_and_what_cannot_be_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_timeouts(monkeypatch, hook_sure_s=0.02)
    ear, folder = Ear(), tmp_path / "spool"
    listener = HookListener(HookSpool(folder), ear.hear, ear.notes.append)
    listener.start()
    try:
        assert "No such file" in ear.notes[0]
        folder.mkdir(mode=0o700)
        deadline = time.monotonic() + 10
        while not (folder / READER).exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        put(folder, "end.9", "")
        ear.wait()
        assert ear.heard[-1][0] == HookNews(what="lost", job="", nodes=())
        assert len(ear.notes) == 1
    finally:
        listener.stop()


def test_no_event_is_lost_in_a_storm(folder: Path) -> None:
    ear = Ear()
    listener = HookListener(HookSpool(folder), ear.hear, ear.notes.append)
    listener.start()
    try:
        for number in range(500):
            (folder / f"end.{number}").write_text(f"bftrain1 end {number} 0 n1 main 0 .\n")
        deadline = time.monotonic() + 20
        while len({one.job for one, _ in ear.heard} - {""}) < 500 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sorted(int(one.job) for one, _ in ear.heard if one.what != "lost") == list(range(500))
        assert ear.notes == []
    finally:
        listener.stop()


def job(vnodes: str = "(n1:ncpus=2)+(n[0]:ncpus=2+n[1]:mem=3)", **more: object) -> SimpleNamespace:
    return SimpleNamespace(**{"id": "7.pbs", "exec_vnode": vnodes, "run_count": 1, "queue": "workq", **more})


def test_the_hook_of_pbs_tells_what_happens(folder: Path) -> None:
    spool = HookSpool(folder)
    spool.open()
    for name in EVENTS:
        assert run_pbs_hook(folder, name, job()) == []
    heard = spool.look(0.0)
    assert sorted(one.what for one in heard) == ["end", "ending", "start"]
    assert {(one.job, one.restart, one.nodes) for one in heard} == {("7.pbs", 1, ("n1", "n[0]", "n[1]"))}
    assert [path.name for path in folder.iterdir()] == [READER]


def test_the_hook_of_pbs_accepts_in_every_case(folder: Path, tmp_path: Path) -> None:
    assert run_pbs_hook(folder, "EXECJOB_END", job()) == [], "there is no reader"
    assert list(folder.iterdir()) == []
    assert run_pbs_hook(tmp_path / "missing", "EXECJOB_END", job()) == []
    HookSpool(folder).open()
    (logged,) = run_pbs_hook(folder, "EXECJOB_END", None)
    assert "AttributeError" in logged
    (logged,) = run_pbs_hook(folder, "EXECJOB_END", job(run_count="x"))
    assert "ValueError" in logged
    (logged,) = run_pbs_hook(folder, "EXECJOB_END", job(queue="\u00e9"))
    assert "UnicodeEncodeError" in logged
    (logged,) = run_pbs_hook(folder, "EXECJOB_END", job(id="../../up"))
    assert "Error" in logged
    assert HookSpool(folder).look(0.0) == []


def test_recorded_events_of_a_real_pbs_are_reported(folder: Path) -> None:
    spool = HookSpool(folder)
    spool.open()
    wanted = []
    kinds = {"EXECJOB_BEGIN": "start", "EXECJOB_EPILOGUE": "ending", "EXECJOB_END": "end"}
    heard = []
    for line in site_data("scheduler-samples/pbs_hook_events_sample.txt").read_text().splitlines():
        _, event, *cells = line.split(" ")
        cell = dict(one.split("=", 1) for one in cells)
        about = job(cell["exec_vnode"], id=cell["job"])
        assert run_pbs_hook(folder, event, about) == []
        heard += spool.look(0.0)
        if event in kinds:
            wanted.append((kinds[event], cell["job"], tuple(cell["vnode_list"].split(","))))
    assert [(one.what, one.job, one.nodes) for one in heard] == wanted
    assert len(wanted) > 10
