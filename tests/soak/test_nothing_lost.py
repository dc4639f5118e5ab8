"""The long versions of the tests that nothing is lost: sizes at which rare orders of events come about."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import registry
from tests.helpers.daemon_kills import kill_daemon
from tests.helpers.launcher_conformance import LocalStage
from tests.helpers.preemptions import survive
from tests.helpers.stages import NODES
from tests.helpers.stalled import WORDS, Stalled
from tests.helpers.storms import lose_first_workers, survive_faults
from tests.soak.conftest import Log

pytestmark = [pytest.mark.torch]

HOROVOD = pytest.param("horovod", marks=pytest.mark.horovod)


@pytest.mark.slurm
@pytest.mark.horovod
@pytest.mark.parametrize("grace_s", [0.0, 5.0])
def test_a_hundred_preemptions_of_the_whole_pool(grace_s: float, soak_log: Log) -> None:
    soak_log(survive(10, 100, load_s=30.0, grace_s=grace_s, seed=1))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("launcher", ["native", "process", HOROVOD])
def test_three_hundred_changes(tmp_path: Path, launcher: str, seed: int, soak_log: Log) -> None:
    soak_log(survive_faults(tmp_path, launcher, changes=300, seed=seed))


@pytest.mark.parametrize("writes", ["written", "crossing", "others", "sharded"])
@pytest.mark.parametrize("launcher", ["native", HOROVOD])
def test_fifty_first_workers_lost_in_their_first_step(
    tmp_path: Path, launcher: str, writes: str, soak_log: Log
) -> None:
    if (launcher, writes) == ("horovod", "sharded"):
        pytest.skip("Horovod does not divide models")
    with LocalStage(registry.load("launcher", launcher), nodes=NODES[:3]) as stage:
        lost = lose_first_workers(stage, tmp_path / "record", writes, 50)
    soak_log({"values lost": float(lost)})
    assert lost == 0


def test_five_hundred_kills_of_the_daemon(tmp_path: Path, soak_log: Log) -> None:
    soak_log(kill_daemon(tmp_path, 500, seed=1))


@pytest.mark.parametrize("fault", sorted(WORDS))
def test_faults_are_named_within_the_time_that_users_have(fault: str, soak_log: Log) -> None:
    with LocalStage(registry.load("launcher", "native"), nodes=("n1", "n2")) as stage:
        with Stalled(stage, fault, limit_s=180.0) as stalled:
            named_s = stalled.demand_it_is_named(WORDS[fault])
            freed_s = 0.0 if fault == "stop" else stalled.demand_it_lets_go()
        soak_log({f"{fault}: named after, s": named_s, f"{fault}: nodes free after, s": freed_s})
