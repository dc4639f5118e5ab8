"""Two users of one machine ask one live run: the kernel tells them apart, not what they claim."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bftrain.live.model.site_config import Api
from tests.helpers.live_run import ordinary
from tests.helpers.live_thread import LiveThread, live_thread


def lacking() -> str:
    """Return why no second user is available here; nothing if there is one."""
    if os.getuid() != 0:
        return "only root can be several users"
    try:
        ordinary()
    except FileNotFoundError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking())

ANN, BOB = 65_534, 65_533
_PATIENCE_S = 60.0


@contextmanager
def shared(tmp_path: Path, mode: str, **more: tuple[str, ...]) -> Iterator[LiveThread]:
    """Yield a live run of root's, with its socket where every user can connect."""
    folder = Path(tempfile.mkdtemp(prefix="bftrain-users-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        settings = Api(socket=str(folder / "api.sock"), mode=mode, **more)
        with live_thread(tmp_path, api=settings) as run:
            yield run
    finally:
        shutil.rmtree(folder)


def call(run: LiveThread, uid: int, *words: str) -> subprocess.CompletedProcess[str]:
    user = ordinary()
    return subprocess.run(
        [user.python, "-m", "bftrain", *words],
        env={**os.environ, **user.env, "BFTRAIN_LIVE": run.socket, "HOME": "/nonexistent"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        user=uid,
        group=uid,
        extra_groups=[],
        timeout=_PATIENCE_S,
        check=False,
    )


def names(run: LiveThread, uid: int) -> list[str]:
    return [task["name"] for task in json.loads(call(run, uid, "status", "--tasks", "--all", "--json").stdout)]


def test_users_see_and_touch_their_own_tasks_only(tmp_path: Path) -> None:
    with shared(tmp_path, "666") as run:
        for uid, name in ((ANN, "ann"), (BOB, "bob")):
            done = call(run, uid, "submit", "true", "--nodes", "1", "--name", name, "--cwd", "/")
            assert done.returncode == 0, done.stderr
        record = {one.name: one.uid for one in run.inside.daemon.task_store.unfinished}
        assert record == {"ann": ANN, "bob": BOB}
        assert (names(run, ANN), names(run, BOB), names(run, 0)) == (["ann"], ["bob"], ["ann", "bob"])
        for words in (
            ("status", "ann"),
            ("task cancel", "ann"),
            ("task pause", "#1"),
            ("task resume", "ann"),
            ("logs", "ann"),
        ):
            refused = call(run, BOB, *words[0].split(), *words[1:])
            assert (refused.returncode, refused.stdout) == (3, ""), words
            assert "no task is called" in refused.stderr
        for words in (("live", "drain", "n1"), ("live", "drain", "--end", "n1")):
            refused = call(run, BOB, *words)
            assert (refused.returncode, "is not an operator" in refused.stderr) == (3, True)
        assert run.inside.daemon.task_store.drained == frozenset()
        assert call(run, BOB, "status").returncode == 0
        assert call(run, ANN, "task", "cancel", "ann").stdout == "ann: cancelled\n"
        assert call(run, 0, "task", "cancel", "bob").stdout == "bob: cancelled\n"


def test_a_site_names_its_operators(tmp_path: Path) -> None:
    with shared(tmp_path, "666", operators=(str(BOB),)) as run:
        assert call(run, ANN, "submit", "true", "--nodes", "1", "--name", "ann", "--cwd", "/").returncode == 0
        assert names(run, BOB) == ["ann"]
        assert call(run, BOB, "live", "drain", "n1").returncode == 0
        assert call(run, BOB, "task", "cancel", "ann").returncode == 0


def test_a_private_socket_lets_no_other_user_in(tmp_path: Path) -> None:
    with shared(tmp_path, "600") as run:
        refused = call(run, ANN, "status")
        assert (refused.returncode, refused.stdout) == (4, "")
        assert "you may not talk to this live run" in refused.stderr
        assert call(run, 0, "status").returncode == 0
