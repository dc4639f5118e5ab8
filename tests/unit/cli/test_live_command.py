"""``bftrain live`` with a scripted scheduler and launcher: what it says, what its demo shows, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import Api, SiteSettings, World, load, meet, parts, site_of

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d (?P<level>info|warning): (?P<text>.*)")
ENDS = "SIGTERM: stopping in order; repeat to stop immediately"


class Eager(World):
    """Lends two nodes when some are wanted, is warm when all tasks are there, and has tasks done soon after a start."""

    def __init__(self, *, finishes: bool = True) -> None:
        super().__init__()
        self._finishes = finishes

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        super().want(nodes, without)
        if nodes and not self.allowed:
            self.lend("n1", "n2")

    def lend_and_end(self, words: str) -> None:
        """As systemd, hear that it is ready; then lend nodes to it, and end it."""
        loop = asyncio.get_running_loop()
        if words == "READY=1":
            loop.call_later(0.02, self.lend, "n1", "n2")
            loop.call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)

    def add(self, task: str, job: Mapping[str, Any]) -> None:
        super().add(task, job)
        if len(self.jobs) == 3:
            for node in ("n1", "n2"):
                self._hear({"type": "warm", "node": node})

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        super().apply(actions)
        for action in actions:
            if action["action"] == "start" and action["nodes"]:
                task = action["task"]
                self.tell(task, "confirmed", size=len(action["nodes"]), step=0)
                for step, loss in ((1, 2.0), (2, 0.5)):
                    self.tell(task, "report", step=step, size=1, samples=96, loss=loss)
                if self._finishes:
                    self.tell(task, "done", step=2)


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="bft-") as folder:
        yield Path(folder)


def lives_in(world: World, home: Path) -> Any:  # noqa: ANN401 - a context
    """Let the demo meet this world instead of real trainings."""
    meet(world)
    site = site_of(home, world, api=Api(tcp="127.0.0.1:0"))
    return mock.patch.multiple("bftrain.live.commands.demo_site", demo_site=lambda _: site, require_torch=lambda: None)


def test_the_demo_tells_what_happens_and_what_was_harvested(bftrain: CommandLine, home: Path) -> None:
    with lives_in(Eager(), home), parts():
        ended = bftrain("live", "--demo")
    assert ended.code == 0, ended.err
    said = ended.err
    for words in ("running; listening on", "warming up", "the timetable starts", "n[1-2] became idle: 2 nodes"):
        assert words in said
    for task in ("pictures", "letters", "waves"):
        assert f"{task} finished" in said
    assert said.index("n[1-2] given back: 0 nodes") < said.index("stopped; the state is in")
    assert ended.out.startswith("harvested: 576 samples in ")
    rows = [
        line.split() for line in ended.out.splitlines() if line.split()[:1] in (["pictures"], ["letters"], ["waves"])
    ]
    assert [(row[1], row[3], row[-1]) for row in rows] == [("done", "192", "0.5")] * 3


def test_the_demo_ends_when_its_time_is_up_with_figures_of_after_the_end(bftrain: CommandLine, home: Path) -> None:
    with lives_in(Eager(finishes=False), home), parts():
        ended = bftrain("live", "--demo", "--for", "0.2", "--json")
    assert ended.code == 0
    assert "time limit of 0.2 s" in ended.err
    tasks = json.loads(ended.out)["tasks"]
    assert [(task["state"], task["nodes"]) for task in tasks] == [("waiting", [])] * 3
    assert max(task["node_s"] for task in tasks) > 0


def test_a_site_is_run_until_a_signal(bftrain: CommandLine, home: Path) -> None:
    config = home / "site.toml"
    config.write_text('state = "state"\nlauncher = "inside"\n[scheduler]\nname = "inside"\n[agents]\nused = false\n')
    said = {}
    for loudness in ((), ("-v",)):
        world = Eager()
        meet(world)
        with parts(), mock.patch("bftrain.live.process.notify_systemd", world.lend_and_end):
            said[loudness] = bftrain("live", "--config", config, *loudness)
    quiet, loud = said.values()
    assert (quiet.code, quiet.out) == (0, "")
    lines = [LINE.fullmatch(line) for line in quiet.err.splitlines()]
    assert {found["level"] for found in lines if found} == {"info"}
    texts = [found["text"] for found in lines if found]
    assert texts[0].startswith("running; listening on unix:")
    assert texts[1:] == [ENDS, f"stopped; the state is in {home}/state/live.db"]
    assert "n[1-2] became idle: 2 nodes" in loud.err


def test_the_log_is_written_as_json(bftrain: CommandLine, home: Path) -> None:
    config = home / "site.toml"
    config.write_text('state = "state"\nlauncher = "inside"\n[scheduler]\nname = "inside"\n[agents]\nused = false\n')
    world = Eager()
    meet(world)
    with parts(), mock.patch("bftrain.live.process.notify_systemd", world.lend_and_end):
        ended = bftrain("live", "--config", config, "--json")
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert all(line.keys() == {"time", "level", "text"} and line["time"].endswith("Z") for line in lines)
    assert lines[0]["text"].startswith("running; listening")


@pytest.mark.parametrize("words", [(), ("--shares", "shares.toml"), ("-v",)])
def test_without_settings_nothing_is_started_or_written(
    words: tuple[str, ...], bftrain: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "usual"))
    monkeypatch.chdir(home)
    Path("shares.toml").write_text("[entities]\nada = { weight = 3 }\n")
    with mock.patch("bftrain.live.process.run") as run:
        ended = bftrain("live", *words)
    assert (ended.code, ended.out) == (2, "")
    assert "--config: a live run needs the settings of a site" in ended.err
    assert "bftrain live --demo" in ended.err
    assert not run.called
    assert not (home / "usual").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--demo", "--config", "{site}"), 2, "the demo has settings of its own"),
        (("--config", "{site}", "--for", "3"), 2, "is for the demo only"),
        (("--config", "{site}"), 3, "unknown key 'no_such_key'"),
        (("--config", "{none}"), 2, "does not exist"),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: tuple[str, ...], code: int, says: str, bftrain: CommandLine, home: Path
) -> None:
    site = home / "site.toml"
    site.write_text("no_such_key = 1\n")
    ended = bftrain("live", *(word.format(site=site, none=home / "none.toml") for word in words))
    assert ended.code == code
    assert says in ended.err


def test_a_signal_that_comes_before_it_listens_ends_it_in_order(bftrain: CommandLine, home: Path) -> None:
    config = home / "site.toml"
    config.write_text('state = "state"\nlauncher = "inside"\n[scheduler]\nname = "inside"\n[agents]\nused = false\n')
    world = Eager()
    meet(world)

    def loaded(path: Path, *, to_run: bool) -> SiteSettings:
        # While it is still being imported; to this thread, for those of other tests would take it
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        return load(path, to_run=to_run)

    with parts(), mock.patch("bftrain.live.model.site_config.load", loaded):
        ended = bftrain("live", "--config", config)
    assert ended.code == 0
    assert f" info: {ENDS}\n" in ended.err
    assert ended.err.splitlines()[-1].partition(" info: ")[2] == f"stopped; the state is in {home}/state/live.db"
    assert world.asked("leave") == [None], "also what a former run left at the scheduler"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
