"""Watching nodes by asking for them, with hooks that say more; and running commands that may hang or fail."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bftrain import Availability
from bftrain.live.schedulers.node_polling import NodeWatch, WatchSettings
from bftrain.live.schedulers.pilot_backend import environment
from tests.helpers.live_inside import Allowed, Remark, Taken, in_a_loop, until
from tests.helpers.live_limits import set_limits
from tests.helpers.schedulers import AgentOrder, Command, CommandFailed, CommandRunner, HookNews, News, Run


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
async def watch(asked: Asked, **settings: float) -> AsyncIterator[tuple[NodeWatch, list[News]]]:
    found = NodeWatch("fake", asked, WatchSettings(**settings), CommandRunner(), lambda: Availability(ok=True))  # type: ignore[arg-type]  # numbers
    news: list[News] = []
    running = asyncio.create_task(found.run(news.append, AgentOrder(argv=())))
    await until(lambda: asked.times)
    try:
        yield found, news
    finally:
        running.cancel()


@in_a_loop
async def test_what_changed_between_two_looks_is_posted(tmp_path: Path) -> None:  # noqa: ARG001 - as its neighbours
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
async def test_a_node_that_was_found_by_a_look_between_is_news_when_it_is_taken() -> None:
    asked = Asked()
    asked.idle = set()
    async with watch(asked, poll_s=30.0) as (found, news):
        asked.idle = {"n1", "n2"}
        assert await found.look() == {"n1", "n2"}
        found._hear([HookNews(what="start", nodes=("n1",), job="8")])  # noqa: SLF001 - as the spool does
        assert news == [Taken(nodes=("n1",))]
        assert await found.look() == {"n2"}, "regardless of an answer that was on its way"
        asked.idle = set()
        await until(lambda: news[-1] == Taken(nodes=("n2",)))


@in_a_loop
async def test_one_that_does_not_answer_is_reported_once_and_asked_less_and_less() -> None:
    asked = Asked()
    asked.fails = "no controller"
    async with watch(asked, poll_s=0.01) as (found, news):
        await until(lambda: len(asked.times) >= 6)
        assert news == [Remark(text="fake does not answer: ask failed with exit code 1: no controller")] or (
            len(news) == 1 and isinstance(news[0], Remark) and "no controller" in news[0].text
        )
        assert asked.times[5] - asked.times[0] >= 0.01 * (1 + 2 + 4 + 8 + 16), "each time twice as long"
        assert await found.look() is None
        asked.fails = ""
        await until(lambda: len(news) == 3)
        assert news[1:] == [Allowed(nodes=("n1", "n2")), Remark(text="fake answers again")]
        asked.fails = "away again"
        await until(lambda: len(news) == 4)


@in_a_loop
async def test_a_job_that_starts_takes_its_nodes_though_an_older_answer_says_they_are_idle() -> None:
    asked = Asked()
    async with watch(asked, poll_s=30.0) as (found, news):
        await until(lambda: news)
        asked.waits = asyncio.Event()
        found._hear([HookNews(what="end", nodes=("n2",), job="7")])  # noqa: SLF001 - as the spool does
        await until(lambda: len(asked.times) == 2)
        found._hear([HookNews(what="start", nodes=("n1",), job="8")])  # noqa: SLF001 - as above
        assert news[-1] == Taken(nodes=("n1",))
        asked.idle = {"n2"}
        asked.waits.set()
        await until(lambda: len(asked.times) >= 3)
        await asyncio.sleep(0.02)
        assert news[-1] == Taken(nodes=("n1",)), "the answer was asked for before the job started"
        asked.idle = {"n1", "n2"}
        found._hear([HookNews(what="end", nodes=("n1",), job="8")])  # noqa: SLF001 - as above
        await until(lambda: news[-1] == Allowed(nodes=("n1",)))
        await asyncio.sleep(0.02)
        before = len(asked.times)
        found._hear([HookNews(what="ending", nodes=("n1",), job="8")])  # noqa: SLF001 - as above
        await asyncio.sleep(0.02)
        assert len(asked.times) == before, "where a job is about to end there is nothing to see yet"


@in_a_loop
async def test_a_node_whose_job_ended_is_looked_at_until_it_is_idle_or_another_job_starts_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hooks tell of an end while the scheduler still tidies up."""
    asked = Asked()
    asked.idle = {"n1"}
    async with watch(asked, poll_s=3600.0) as (found, news):
        await until(lambda: news)
        found._hear([HookNews(what="start", nodes=("n2",), job="7"), HookNews(what="end", nodes=("n2",), job="7")])  # noqa: SLF001 - as the spool does
        await until(lambda: len(asked.times) >= 5)
        assert asked.times[4] - asked.times[3] >= asked.times[3] - asked.times[1], "ever less often"
        asked.idle = {"n1", "n2"}
        await until(lambda: news[-1] == Allowed(nodes=("n2",)))
        asked.idle = {"n2"}
        found._hear([HookNews(what="end", nodes=("n3",), job="8")])  # noqa: SLF001 - as above
        await until(lambda: news[-1] == Taken(nodes=("n1",)))
        found._hear([HookNews(what="start", nodes=("n3",), job="9")])  # noqa: SLF001 - as above
        before = len(asked.times)
        await until(lambda: len(asked.times) > before)
        before = len(asked.times)
        await asyncio.sleep(0.05)
        assert len(asked.times) == before, "who starts there says when it ends"
        set_limits(monkeypatch, node_tidying_s=0.05)
        found._hear([HookNews(what="end", nodes=("n4",), job="8")])  # noqa: SLF001 - as above
        await until(lambda: not found._ended)  # noqa: SLF001 - the last look of those
        before = len(asked.times)
        await asyncio.sleep(0.1)
        assert len(asked.times) == before, "a node that never becomes idle is left to the next regular look"


@in_a_loop
async def test_without_a_spool_that_can_be_used_nodes_are_still_looked_at(tmp_path: Path) -> None:
    asked = Asked()
    async with watch(asked, poll_s=0.01, spool=str(tmp_path / "missing")) as (_, news):  # type: ignore[arg-type]  # a text
        await until(lambda: len(asked.times) > 2 and len(news) > 1)
        assert Allowed(nodes=("n1", "n2")) in news
        (remark,) = [one.text for one in news if isinstance(one, Remark)]
        assert "hooks are not heard" in remark
        assert "No such file" in remark
    async with watch(asked, poll_s=0.01, spool=str(tmp_path), spool_writers=("nosuchuser",)) as (_, news):  # type: ignore[arg-type]  # as above
        await until(lambda: len(news) > 1)
        assert "nosuchuser" in str(news[0])
        assert Allowed(nodes=("n1", "n2")) in news


@in_a_loop
async def test_a_message_that_cannot_be_read_makes_a_look_come_at_once() -> None:
    asked = Asked()
    async with watch(asked, poll_s=3600.0) as (found, news):
        await until(lambda: news)
        asked.idle = {"n1"}
        found._hear([HookNews(what="lost", nodes=(), job="")])  # noqa: SLF001 - as the spool does
        await until(lambda: news[-1] == Taken(nodes=("n2",)))


@in_a_loop
async def test_jobs_that_no_hook_reports_are_remarked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_limits(monkeypatch, hook_silence_s=0.0)
    asked = Asked()
    async with watch(asked, poll_s=0.01, spool=str(tmp_path)) as (found, news):
        await until(lambda: news)
        found._hear([HookNews(what="end", nodes=("n1",), job="7")])  # noqa: SLF001 - the prolog is missing
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
