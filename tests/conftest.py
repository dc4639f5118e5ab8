"""What all tests share: repeatable hypothesis, tests that need a real Slurm or browser, figures of benchmarks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.helpers import chromium, gpu, horovod, site, slurm, soak_log, torch
from tests.helpers.figures import Figures
from tests.helpers.in_process import CommandLine

# The same examples every time, so that a run that was green stays green; HYPOTHESIS_PROFILE=explore looks for new ones
settings.register_profile("repeat", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

# marker -> what says why its tests cannot run here
_NEEDS = {
    "slurm": slurm.lacking,
    "chromium": chromium.lacking,
    "horovod": horovod.lacking,
    "torch": torch.lacking,
    "gpu": gpu.lacking,
    "docs": site.lacking,
}
MINUTE_S = 60.0
_FIGURES = pytest.StashKey[Figures]()


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach what tests start, also when we were started in the background, where it is switched off.

    Replays leave their sensitivity tables out, as with --quick; tests of that table ask for it. Nothing is taken from
    what earlier tests have replayed. Each process but those that are measured computes with one thread: threads of
    several processes that wait for each other take several times as long as the work.
    """
    os.environ.setdefault("BFTRAIN_NO_CACHE", "1")
    os.environ.setdefault("BFTRAIN_QUICK", "1")
    if config.option.markexpr != "bench":
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # likewise under nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot run here, and say what would help; long tests come first, so that none ends alone."""
    items.sort(key=lambda item: item.get_closest_marker("apart") is None)
    reasons = {name: reason for name, lacking in _NEEDS.items() if (reason := lacking())}
    for item in items:
        for name, reason in reasons.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(optionalhook=True)  # pytest-xdist asks for it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:  # noqa: ANN401 - of xdist
    """Let one process run the tests of a file, unless they are marked ``apart``."""
    if config.getvalue("dist") != "loadfile":
        return None  # as xdist does it
    from tests.helpers.file_scheduling import FileScheduling  # noqa: PLC0415 - needs xdist

    return FileScheduling(config, log)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Write how tests marked ``soak`` ended to the soak log, wherever they are."""
    outcome = yield
    if item.get_closest_marker("soak"):
        soak_log.write(item, outcome.get_result())  # type: ignore[attr-defined]  # what pytest sends here


def pytest_sessionstart(session: pytest.Session) -> None:
    """Show how long a run takes, in the process that prints."""
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(TimeLeft(session.config))


class TimeLeft:
    """Shows, each minute of a long run, how many tests are left and about how long they take; long ones come first."""

    def __init__(self, config: pytest.Config) -> None:
        self._terminal = config.pluginmanager.get_plugin("terminalreporter")
        self._begun_s = self._shown_s = time.monotonic()
        self._done = 0

    def pytest_runtest_logfinish(self, nodeid: str) -> None:  # noqa: ARG002 - pytest goes by names
        self._done += 1
        now_s = time.monotonic()
        left = self._terminal._session.testscollected - self._done  # noqa: SLF001 - as pytest's own percentages
        if now_s - self._shown_s >= MINUTE_S and left > 0:
            self._shown_s = now_s
            left_s = left * (now_s - self._begun_s) / self._done
            self._terminal.ensure_newline()
            self._terminal.write_line(f"{self._done} tests done, {left} left: about {left_s / MINUTE_S:.0f} min")


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[slurm.Slurm]:
    """Run a real Slurm of four nodes for the tests of this process; mark them with ``slurm``."""
    with slurm.Slurm(nodes=4) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def browser() -> Iterator[chromium.Chromium]:
    """Run a headless Chromium for the tests of this process; mark them with ``chromium``."""
    with chromium.Chromium() as running:
        yield running


@pytest.fixture
def bftrain(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    """Return the command line in this process: ``bftrain("decide", file).out``."""
    from tests.helpers.in_process import CommandLine  # noqa: PLC0415 - most tests need none

    return CommandLine(monkeypatch, capfd)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """Collect figures: ``figures.add("1,000 tasks", 12.3, "ms")``; they are printed when all tests are done."""
    stash = request.config.stash
    if _FIGURES not in stash:
        stash[_FIGURES] = Figures()
    return stash[_FIGURES].of(request.node.name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _FIGURES in config.stash:
        terminalreporter.section("figures")
        for line in config.stash[_FIGURES].lines():
            terminalreporter.write_line(line)
