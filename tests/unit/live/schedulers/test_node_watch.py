"""Watching nodes by asking for them, several pools, and running commands that may hang or fail."""

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
from typing import Any, cast

import pytest

from bftrain import BadConfig, BadValue, NotAvailable, Run, SpeedCurve, Submission
from bftrain.live.schedulers.base import SchedulerPool, SchedulerPools
from bftrain.live.schedulers.cluster import ClusterScheduler
from bftrain.live.schedulers.pilots import NodeWatch, WatchSettings
from tests.helpers.live_inside import (
    Allowed,
    Remark,
    SchedulerFacts,
    Taken,
    World,
    decided,
    in_a_loop,
    live_inside,
    load,
    ourselves,
    until,
)
from tests.helpers.schedulers import (
    READER,
    AgentOrder,
    Command,
    CommandFailed,
    CommandRunner,
    News,
    PoolSettings,
    environment,
)
from tests.helpers.timeouts import set_timeouts


class Asked:
    """A scheduler that is asked for its idle nodes."""

    def __init__(self) -> None:
        self.idle: set[str] = {"n1", "n2"}
        self.times: list[float] = []
        self.in_last_minute = 0
        self.fails = ""
        self.waits: asyncio.Event | None = None

    async def __call__(self, command: Command) -> str:  # noqa: ARG002 - as CommandRunner
        self.times.append(time.monotonic())
        answer = " ".join(self.idle)
        if self.waits is not None:
            await self.waits.wait()
        if self.fails:
            raise CommandFailed(("ask",), 1, self.fails)
        return answer


@asynccontextmanager
async def watch(asked: Asked, **settings: Any) -> AsyncIterator[tuple[NodeWatch, list[News]]]:  # noqa: ANN401 - any setting
    command, run = Command(argv=("true",)), cast("CommandRunner", asked)
    found = NodeWatch("fake", command, lambda text: frozenset(text.split()), WatchSettings(**settings), "", run)
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
        set_timeouts(monkeypatch, node_tidying_s=0.05)
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
        assert "messages of hooks are not received" in remark
        assert "No such file" in remark
    async with watch(asked, poll_s=0.01, spool=str(tmp_path), spool_writers=("nosuchuser",)) as (_, news):
        await until(lambda: len(news) > 1)
        assert "nosuchuser" in str(news[0])
        assert Allowed(nodes=("n1", "n2")) in news


@in_a_loop
async def test_a_command_gives_what_it_printed_and_is_given_what_it_reads() -> None:
    run = CommandRunner(more={"SAID": "so"})
    assert await run(Command(argv=("/bin/sh", "-c", "cat; echo $SAID"), stdin="hello\n")) == "hello\nso\n"
    assert await run(Command(argv=("/bin/sh", "-c", "umask"))) == "0077\n"
    assert run.in_last_minute == 2


@in_a_loop
async def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(CommandFailed) as failed:
        await CommandRunner()(Command(argv=("/bin/sh", "-c", "echo some; echo no such partition >&2; exit 3")))
    assert (failed.value.code, failed.value.error_text, failed.value.printed) == (3, "no such partition", "some\n")
    with pytest.raises(CommandFailed) as failed:
        await CommandRunner()(Command(argv=("/bin/sh", "-c", f"printf '%s' {'x' * 2000}; exit 1")))
    assert failed.value.error_text == "x" * 500, "the end of it is enough"
    with pytest.raises(CommandFailed) as failed:
        await CommandRunner()(Command(argv=("/no/such/command",)))
    assert (failed.value.code, failed.value.error_text) == (127, "cannot be run: No such file or directory")


@in_a_loop
async def test_a_command_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! >> {pids}; echo $$ >> {pids}; wait"
    begun = time.monotonic()
    with pytest.raises(CommandFailed) as failed:
        await CommandRunner(timeout_s=2.0)(Command(argv=("/bin/sh", "-c", script)))
    assert (failed.value.code, failed.value.error_text) == (124, "did not answer within 2 s")
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


AGENT = AgentOrder(argv=("agent",))
SITE = """
[[scheduler]]
name = "slurm"
partition = "spare"
[[scheduler]]
name = "slurm"
pool = "gpu"
partition = "gpu"
kind = "v100"
max_nodes = 4
"""


def pool(world: World, **settings: Any) -> SchedulerPool:  # noqa: ANN401 - any setting
    return SchedulerPool(PoolSettings(name="inside", **settings), world)


def wants(world: World) -> int:
    return int(world.asked("want")[-1][0])


async def running(*pools: SchedulerPool) -> tuple[SchedulerPools, list[Any], asyncio.Task[None]]:
    found, news = SchedulerPools(pools), list[Any]()
    task = asyncio.create_task(found.run(news.append, AGENT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return found, news, task


def test_a_list_of_schedulers_is_read_and_each_has_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SITE)
    site = load(tmp_path / "site.toml")
    first, second = site.pools
    assert (first.label, first.table, second.label) == ("slurm", {"partition": "spare"}, "gpu")
    assert second.table == {"partition": "gpu", "max_nodes": 4}
    assert [site.for_scheduler(one).name for one in site.pools] == ["bftrain", "bftrain-gpu"]
    assert site.scheduler_name == "slurm"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[scheduler]]\nname = "slurm"\n[[scheduler]]\nname = "pbs"\n', "number 2: another pool also has no name"),
        (
            '[[scheduler]]\nname = "slurm"\npool = "a"\n[[scheduler]]\nname = "pbs"\npool = "a"\n',
            "another pool called 'a'",
        ),
        ('[[scheduler]]\npartition = "a"\n', "number 1: has no name"),
        ('[scheduler]\nname = "slurm"\npool = "a b"\n', "must be up to 40 letters"),
        ("scheduler = []\n", "names no scheduler"),
    ],
)
def test_pools_that_cannot_be_are_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises((BadConfig, BadValue), match=words):
        load(tmp_path / "site.toml")


@in_a_loop
async def test_each_is_asked_for_what_the_others_do_not_have() -> None:
    left, right = World(), World()
    pools, _, task = await running(pool(left), pool(right, pool="right"))
    pools.want(5, frozenset({"bad"}))
    assert (wants(left), wants(right)) == (5, 5)
    left.lend("n1", "n2", "n3")
    assert (wants(left), wants(right)) == (5, 2)
    right.lend("n3")  # a node that both have, now by the other's word
    assert (wants(left), wants(right)) == (4, 3)
    left.take("n1", "n2", "n3")
    assert (wants(left), wants(right)) == (4, 5)
    assert left.asked("want")[-1][1] == {"bad"}
    task.cancel()


@in_a_loop
async def test_a_pool_with_a_kind_is_asked_for_what_tasks_can_use_of_it() -> None:
    left, right = World(), World()
    pools, _, task = await running(pool(left, kind="v100"), pool(right, pool="right", kind="k80"))
    pools.want_kinds({"v100": 2, "k80": 0})
    pools.want(2)
    assert (wants(left), wants(right)) == (2, 0)
    right.known = SchedulerFacts(nodes=frozenset({"n8", "n9"}))
    assert pools.facts().node_kinds == {"n8": "k80", "n9": "k80"}
    task.cancel()


@in_a_loop
async def test_a_node_with_a_pilot_is_not_a_machine_of_the_cluster_too() -> None:
    pilots, cluster = World(), ClusterScheduler()
    own = SchedulerPool(PoolSettings(name="cluster", pool="own"), cluster)
    pools, news, task = await running(pool(pilots), own)
    pools.want(4)
    pilots.lend("n1")
    pools.registered("n1", 0)
    pools.registered("n2", 0)  # its agent connects before its pilot is listed
    pilots.lend("n2")
    pools.registered("m1", 2)
    assert await cluster.look() == {"m1"}
    assert await pools.look() == {"n1", "n2", "m1"}
    assert wants(pilots) == 3
    # n2 stays, though the cluster loses it
    assert news == [Allowed(nodes=(node,)) for node in ("n1", "n2", "n2", "m1")]
    task.cancel()


@in_a_loop
async def test_nodes_are_given_back_where_they_came_from() -> None:
    left, right = World(), World()
    pools, _, task = await running(pool(left), pool(right, pool="right"))
    left.lend("n1")
    right.lend("n2")
    await pools.give_back(("n1",))
    assert (left.asked("give_back"), right.asked("give_back")) == ([("n1",)], [])
    await pools.give_back(("n7",))  # that no pool reported yet
    assert right.asked("give_back") == [("n7",)]
    pools.noticed("n2")
    assert (left.asked("noticed"), right.asked("noticed")) == ([], ["n2"])
    pools.hint()
    right.breaks["leave"] = RuntimeError("no")
    with pytest.raises(RuntimeError, match="no"):
        await pools.leave()
    assert len(left.asked("leave")) == len(left.asked("hint")) == 1
    task.cancel()


@in_a_loop
async def test_one_that_breaks_is_run_again_and_disturbs_no_other() -> None:
    left, right = World(), World()
    right.breaks["run"] = RuntimeError("lost my way")
    pools, news, task = await running(pool(left), pool(right, pool="right"))
    left.lend("n1")
    assert Remark(text="pool 'right': it broke: RuntimeError: lost my way") in news
    del right.breaks["run"]
    await until(lambda: right.listening, "it listens again")
    right.lend("n2")
    left.take("n1")
    assert news[-2:] == [Allowed(nodes=("n2",)), Taken(nodes=("n1",))]
    assert pools.name == "inside"
    task.cancel()


@in_a_loop
async def test_of_one_that_cannot_be_asked_its_last_nodes_count() -> None:
    left, right = World(), World()
    pools = SchedulerPools((pool(left), pool(right, pool="right")))
    left.allowed, right.allowed = {"n1"}, {"n2"}
    right.look = _unknown  # type: ignore[method-assign]  # it does not answer
    assert await pools.look() is None
    del right.look
    assert await pools.look() == {"n1", "n2"}
    right.look = _unknown  # type: ignore[method-assign]  # as above
    left.allowed = {"n3"}
    assert await pools.look() == {"n3", "n2"}


async def _unknown() -> frozenset[str] | None:
    return None


@in_a_loop
async def test_one_that_can_never_work_is_named() -> None:
    async def check(_: AgentOrder) -> None:
        raise NotAvailable("Slurm has no such partition", where="partition 'gpu'", fix="see sinfo")

    right: Any = World()
    right.check = check
    with pytest.raises(NotAvailable, match="pool 'right': partition 'gpu': Slurm has no such partition"):
        await SchedulerPools((pool(World()), pool(right, pool="right"))).check(AGENT)


@in_a_loop
async def test_nodes_of_a_pool_have_its_kind_also_while_its_scheduler_does_not_answer(tmp_path: Path) -> None:
    world = World()
    world.known = SchedulerFacts(nodes=frozenset({"n1", "n2"}))
    settings: dict[str, Any] = {"scheduler": {"name": "inside", "kind": "v100"}}
    curves = {"v100": SpeedCurve(nodes=(1, 2), rate=(1.0, 2.0))}
    given = Submission(run=Run(argv=("train.py",)), max_nodes=2, curves=curves, name="a")
    async with live_inside(tmp_path, world, **settings) as (daemon, service, _, _):
        await service.submit(ourselves(), given)
        world.lend("n1")
        await decided(daemon)
        assert world.held["a"] == {"n1"}
        assert service.nodes(ourselves())[0].kind == "v100"
    world.known = SchedulerFacts()
    async with live_inside(tmp_path, world, **settings) as (daemon, service, _, _):
        await decided(daemon)
        assert service.nodes(ourselves())[0].kind == "v100"
        assert world.held["a"] == {"n1"}
