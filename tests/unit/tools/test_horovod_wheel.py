"""Building Horovod, without building it: what is kept, what is shared, what is said when it cannot be done."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.sessions import alive_in_session
from tools import horovod_wheel
from tools.horovod_wheel import CannotBuild, NoCompiler

TOOL = Path(horovod_wheel.__file__)
NAME = "horovod-0.28.1-cp3xx-torch-2.13.0"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keep wheels in a folder of our own, and believe that torch is here and that C++ can be compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(horovod_wheel, "torch_version", lambda: "2.13.0")
    monkeypatch.setattr(horovod_wheel, "need_compiler", lambda: None)
    return tmp_path / "cache" / "bftrain" / "horovod"


def pretend(place: Path, log: Path) -> Path:
    """Build nothing, but note that it was done."""
    with log.open("a") as file:
        file.write("built\n")
    time.sleep(0.05)
    wheel = place / "horovod-0.28.1-any.whl"
    wheel.touch()
    return wheel


def test_a_wheel_is_built_once(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setattr(horovod_wheel, "build", pretend)
    first = horovod_wheel.wheel(NAME)
    assert first.parent == own_cache / NAME
    assert first.parent.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(horovod_wheel, "build", lambda *_: pytest.fail("built again"))
    assert horovod_wheel.wheel(NAME) == first


def _build_in_a_process(name: str) -> None:
    horovod_wheel.build = pretend
    horovod_wheel.need_compiler = lambda: None
    horovod_wheel.torch_version = lambda: "2.13.0"
    horovod_wheel.wheel(name)


def test_of_two_builds_at_once_the_second_waits_and_takes_what_the_first_built(
    own_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=_build_in_a_process, args=(NAME,)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert [one.exitcode for one in both] == [0, 0]
    assert (own_cache / NAME / "build.log").read_text().count("built") == 1
    assert capfd.readouterr().out.count("Building Horovod") == 1


def test_a_build_that_fails_leaves_no_wheel(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    def half(work: Path, log: Path) -> Path:
        (work / "horovod-0.28.1-any.whl.half").touch()
        raise CannotBuild(f"see {log}")

    monkeypatch.setattr(horovod_wheel, "build", half)
    with pytest.raises(CannotBuild, match=r"build\.log"):
        horovod_wheel.wheel(NAME)
    assert horovod_wheel.kept_wheel(own_cache / NAME) is None
    monkeypatch.setattr(horovod_wheel, "build", pretend)
    assert horovod_wheel.wheel(NAME).name == "horovod-0.28.1-any.whl"


def test_the_end_of_a_build_ends_what_it_started(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "import pathlib, signal, sys; from tools import horovod_wheel as tool;"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143));"
        f"tool.run(pathlib.Path({str(log)!r}), 'sh', '-c', 'echo $$; sleep 600 & wait')"
    )
    running = subprocess.Popen([sys.executable, "-c", program], cwd=TOOL.parents[1])
    while not log.exists() or len(log.read_text().splitlines()) < 2:
        time.sleep(0.01)
    shell = int(log.read_text().splitlines()[1])
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 143
    deadline = time.monotonic() + 60.0
    while alive_in_session(shell):
        assert time.monotonic() < deadline, "the compilation goes on"
        time.sleep(0.01)


def test_no_compiler_is_said_with_what_helps(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tools import horovod_wheel as tool; tool.need_compiler()"],
        cwd=TOOL.parents[1],
        env={"PATH": str(tmp_path), "APT": "no"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Horovod cannot be built here: there is no C++ compiler." in done.stderr
    assert "apt-get install g++" in done.stderr


@pytest.mark.parametrize(
    ("reason", "arguments", "code"),
    [(NoCompiler, [], 1), (NoCompiler, ["--if-possible"], 0), (CannotBuild, ["--if-possible"], 1)],
)
def test_only_a_missing_compiler_is_excused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reason: type[CannotBuild],
    arguments: list[str],
    code: int,
) -> None:
    def fail() -> str:
        raise reason("Why, and what helps.")

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(horovod_wheel, "wheel_name", fail)
    try:
        assert horovod_wheel.main(arguments) == code
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    said = capsys.readouterr().err
    assert "Why, and what helps." in said
    assert ("will skip" in said) is (code == 0)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("tar: write error: No space left on device", "The disk is full"),
        ("WARNING: Retrying after NewConnectionError", "The network cannot be reached"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "want of memory"),
        (
            "a.cc:1:2: error: no such thing\nmake: *** [all] Error 2\n" + "noise\n" * 20,
            "a.cc:1:2: error: no such thing",
        ),
    ],
)
def test_a_failure_is_explained_from_the_log_of_its_own_step(tmp_path: Path, said: str, words: str) -> None:
    log = tmp_path / "build.log"
    log.write_text(f"$ pip install\nConnectTimeout, then it worked\nNo space left on device\n$ pip wheel\n{said}\n")
    with pytest.raises(CannotBuild) as raised:
        horovod_wheel.explain(log)
    assert words in str(raised.value)
    assert str(log) in str(raised.value)
