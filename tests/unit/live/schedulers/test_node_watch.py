"""Watching nodes by asking for them, with hooks that say more; and running commands that may hang or fail."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bftrain import Availability
from bftrain.live.schedulers.node_polling import NodeWatch, WatchSettings
from bftrain.live.schedulers.pilot_backend import environment
from tests.helpers.live_inside import Allowed, Remark, Taken, in_a_loop, until
from tests.helpers.live_limits import set_limits
from tests.helpers.schedulers import READER, AgentOrder, Command, CommandFailed, CommandRunner, News, Run


class Asked:
    """A scheduler that is asked for its idle nodes."""

    def __init__(self) -> None:
        self.idle: set[str] = {"n1", "n2"}
        self.times: list[float] = []
        self.fails = ""
        self.waits: asyncio.Event | None = None

    async def __call__(self, run: Run) -> frozenset[str]:  # noqa: ARG002 - as Ask
        self.times.append(time.monotonic())
        answer = frozenset(self.idle)
        if self.waits is not None:
            await self.waits.wait()
        if self.fails:
            raise CommandFailed(("ask",), 1, self.fails)
        return answer


@asynccontextmanager
async def watch(asked: Asked, **settings: Any) -> AsyncIterator[tuple[NodeWatch, list[News]]]:  # noqa: ANN401 - any setting
    found = NodeWatch("fake", asked, WatchSettings(**settings), CommandRunner(), lambda: Availability(ok=True))
    news: list[News] = []
    running = asyncio.create_task(found.run(news.append, AgentOrder(argv=())))
    await until(lambda: asked.times)
    try:
        yield found, news
    finally:
        running.cancel()
        await asyncio.wait({running})


class Hooks:
    """A spool, and the hooks that write there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "spool"
        self.folder.mkdir(mode=0o700)
        self._count = count()

    async def tell(self, *lines: str) -> None:
        """Write messages, such as "end 7 n1" for job 7, and wait until they are read."""
        await until((self.folder / READER).exists)
        files = []
        for line in lines:
            what, job, node = line.split()
            files.append(self.folder / f"{next(self._count):03}.{job}")
            unfinished = files[-1].with_name(f".{files[-1].name}")
            unfinished.write_text("" if what == "lost" else f"bftrain1 {what} {job} 0 {node} main 0 .\n")
            unfinished.rename(files[-1])
        await until(lambda: not any(file.exists() for file in files), "messages are read")
        await asyncio.sleep(0.02)


@in_a_loop
async def test_what_changed_between_two_looks_is_posted() -> None:
    asked = Asked()
    async with watch(asked, poll_s=0.01) as (found, news):
        await until(lambda: news)
        assert news == [Allowed(nodes=("n1", "n2"))]
        asked.idle = {"n2", "n3"}
        await until(lambda: len(news) == 3)
        assert news[1:] == [Taken(nodes=("n1",)), Allowed(nodes=("n3",))]
        assert await found.look() == {"n2", "n3"}
        found.want(1, ())
        found.hint()
        await found.give_back(["n2"])
        await found.leave()
        assert len(news) == 3, "nothing is held, so nothing is let go"


@in_a_loop
async def test_one_that_does_not_answer_is_reported_once_and_asked_less_and_less() -> None:
    asked = Asked()
    asked.fails = "no controller"
    async with watch(asked, poll_s=0.01) as (found, news):
        await until(lambda: len(asked.times) >= 6)
        (remark,) = news
        assert isinstance(remark, Remark)
        assert "no controller" in remark.text
        assert asked.times[5] - asked.times[0] >= 0.01 * (1 + 2 + 4 + 8 + 16), "each time twice as long"
        assert await found.look() is None
        asked.fails = ""
        await until(lambda: len(news) == 3)
        assert news[1:] == [Allowed(nodes=("n1", "n2")), Remark(text="fake answers again")]


@in_a_loop
async def test_a_job_that_starts_takes_its_nodes_though_an_older_answer_says_they_are_idle(tmp_path: Path) -> None:
    asked, hooks = Asked(), Hooks(tmp_path)
    async with watch(asked, poll_s=3600.0, spool=str(hooks.folder)) as (found, news):
        await until(lambda: news)
        asked.waits = asyncio.Event()
        await hooks.tell("end 7 n2")
        await until(lambda: len(asked.times) == 2)
        await hooks.tell("start 8 n1")
        await until(lambda: news[-1] == Taken(nodes=("n1",)))
        asked.idle = {"n2"}
        asked.waits.set()
        await until(lambda: len(asked.times) >= 3)
        await asyncio.sleep(0.02)
        assert news[-1] == Taken(nodes=("n1",)), "the answer was asked for before the job started"
        assert await found.look() == {"n2"}
        asked.idle = {"n1", "n2"}
        await hooks.tell("end 8 n1")
        await until(lambda: news[-1] == Allowed(nodes=("n1",)))
        await asyncio.sleep(0.02)
        before = len(asked.times)
        await hooks.tell("ending 8 n1")
        assert len(asked.times) == before, "where a job is about to end there is nothing to see yet"
        asked.idle = {"n1"}
        await hooks.tell("lost 9 -")  # as on a full disk
        await until(lambda: Taken(nodes=("n2",)) in news, "a message that cannot be read is a reason to look")


@in_a_loop
async def test_a_node_whose_job_ended_is_looked_at_until_it_is_idle_or_another_job_starts_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks tell of an end while the scheduler still tidies up."""
    asked, hooks = Asked(), Hooks(tmp_path)
    asked.idle = {"n1"}
    async with watch(asked, poll_s=3600.0, spool=str(hooks.folder)) as (_, news):
        await until(lambda: news)
        await hooks.tell("start 7 n2", "end 7 n2")
        await until(lambda: len(asked.times) >= 5)
        asked.idle = {"n1", "n2"}
        await until(lambda: news[-1] == Allowed(nodes=("n2",)))
        asked.idle = {"n2"}
        await hooks.tell("end 8 n3")
        await until(lambda: news[-1] == Taken(nodes=("n1",)))
        await hooks.tell("start 9 n3")
        await _rests(asked)
        set_limits(monkeypatch, node_tidying_s=0.05)
        await hooks.tell("end 8 n4")  # which never becomes idle
        await _rests(asked)


async def _rests(asked: Asked) -> None:
    """Wait until nothing has been asked for a while."""
    before = -1
    while before != len(asked.times):
        before = len(asked.times)
        await asyncio.sleep(0.2)


@in_a_loop
async def test_without_a_spool_that_can_be_used_nodes_are_still_looked_at(tmp_path: Path) -> None:
    asked = Asked()
    async with watch(asked, poll_s=0.01, spool=str(tmp_path / "missing")) as (_, news):
        await until(lambda: len(asked.times) > 2 and len(news) > 1)
        assert Allowed(nodes=("n1", "n2")) in news
        (remark,) = [one.text for one in news if isinstance(one, Remark)]
        assert "hooks are not heard" in remark
        assert "No such file" in remark
    async with watch(asked, poll_s=0.01, spool=str(tmp_path), spool_writers=("nosuchuser",)) as (_, news):
        await until(lambda: len(news) > 1)
        assert "nosuchuser" in str(news[0])
        assert Allowed(nodes=("n1", "n2")) in news


@in_a_loop
async def test_jobs_that_no_hook_reports_are_remarked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_limits(monkeypatch, hook_silence_s=0.0)
    asked, hooks = Asked(), Hooks(tmp_path)
    async with watch(asked, poll_s=0.01, spool=str(hooks.folder)) as (_, news):
        await until(lambda: news)
        await hooks.tell("end 7 n1")  # the prolog is missing
        for idle in ({"n1"}, {"n1", "n2"}, {"n2"}, set()):
            asked.idle = set(idle)
            before = len(asked.times)
            await until(lambda: len(asked.times) > before + 3)  # noqa: B023 - called before the next round
        (remark,) = [one.text for one in news if isinstance(one, Remark)]
        assert "node n2 left without a job's start being reported" in remark


@in_a_loop
async def test_a_command_gives_what_it_printed_and_is_given_what_it_reads() -> None:
    run = CommandRunner(more={"SAID": "so"})
    assert await run(Command(argv=("/bin/sh", "-c", "cat; echo $SAID"), stdin="hello\n")) == "hello\nso\n"
    assert await run(Command(argv=("/bin/sh", "-c", "umask"))) == "0077\n"


@in_a_loop
async def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(CommandFailed) as failed:
        await CommandRunner()(Command(argv=("/bin/sh", "-c", "echo some; echo no such partition >&2; exit 3")))
    assert (failed.value.code, failed.value.said, failed.value.printed) == (3, "no such partition", "some\n")
    with pytest.raises(CommandFailed) as failed:
        await CommandRunner()(Command(argv=("/bin/sh", "-c", f"printf '%s' {'x' * 2000}; exit 1")))
    assert failed.value.said == "x" * 500, "the end of it is enough"
    with pytest.raises(CommandFailed) as failed:
        await CommandRunner()(Command(argv=("/no/such/command",)))
    assert (failed.value.code, failed.value.said) == (127, "cannot be run: No such file or directory")


@in_a_loop
async def test_a_command_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! >> {pids}; echo $$ >> {pids}; wait"
    begun = time.monotonic()
    with pytest.raises(CommandFailed) as failed:
        await CommandRunner(timeout_s=2.0)(Command(argv=("/bin/sh", "-c", script)))
    assert (failed.value.code, failed.value.said) == (124, "did not answer within 2 s")
    assert time.monotonic() - begun < 10
    await until(lambda: not any(_lives(int(pid)) for pid in pids.read_text().split()))


@in_a_loop
async def test_an_abandoned_command_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    waiting = asyncio.create_task(CommandRunner()(Command(argv=("/bin/sh", "-c", f"echo $$ > {pids}; exec sleep 600"))))
    await until(lambda: pids.exists() and pids.read_text().strip())
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not _lives(int(pids.read_text()))


@pytest.mark.parametrize("script", ["setsid sleep 60 & {note}; wait", "setsid sleep 60 & {note}", "sleep 60 & {note}"])
def test_pipes_that_are_held_by_what_a_command_left_behind_are_not_waited_for(script: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = Command(argv=("/bin/sh", "-c", script.format(note=f"echo $! >{pid}")))
    with pytest.raises(CommandFailed, match=r"did not answer within 0\.5 s"):
        asyncio.run(asyncio.wait_for(CommandRunner(timeout_s=0.5)(command), 20.0))
    gc.collect()  # a pipe that was left open fails the test here
    if pid.exists() and _lives(int(pid.read_text())):
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_commands_see_no_options_and_nothing_of_a_job_we_run_in() -> None:
    given = {"PATH": "/bin", "SLURM_JOB_ID": "7", "SBATCH_PARTITION": "x", "SLURM_CONF": "/etc/s", "BFTRAIN_LIVE": "s"}
    assert environment(given) == {"PATH": "/bin", "SLURM_CONF": "/etc/s"}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
