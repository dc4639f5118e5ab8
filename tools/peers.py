"""Compare elastic training by bftrain, torchrun and torchft: the same model, resizes and faults on this machine.

``make peers`` runs it. It installs torchft with this environment's version of torch into ``.venv-peers``, and prints
the length of pauses, the repeated steps, and the share of throughput that is kept while random workers are killed.
Each worker stands for a node. A step takes 0.1 s, mostly asleep like a host that waits for its GPU. With torchrun,
rank 0 writes a checkpoint every ten steps. Both peers get shorter timeouts than by default.
"""
# ruff: noqa: ANN401, PLC0415, S311 - torch is imported in workers, and has no types here

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

PEERS: Final = Path(__file__).resolve().parents[1] / ".venv-peers/bin"
NODES: Final = 4
RESIZES: Final = (2, 4, 3, 4, 6, 4)
INTERVAL_S: Final = 60 * 30 / 62  # interval of 62 faults in 30 minutes
STEP_S: Final = 0.1
REST_S: Final = 12.0  # time at each size, and before each fault as a measure of undisturbed throughput
TIMEOUT_S: Final = 120.0
RDZV: Final = ("--nnodes=2:6", "--rdzv-backend=c10d", "--rdzv-conf=last_call_timeout=5,is_host=0")
LIGHTHOUSE: Final = ("--min_replicas=1", "--join_timeout_ms=1000", "--heartbeat_timeout_ms=1000", "--quorum_tick_ms=50")


def train(system: str, folder: Path) -> None:
    """Train as one worker, and log each committed step."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
    optimizer = torch.optim.Adam(model.parameters())

    def run_step(wrapped: Any, optimizer: Any, exchange: Callable[[], object] = lambda: None) -> None:
        begun, x = time.monotonic(), torch.randn(32, 256)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(wrapped(x), x)
        time.sleep(max(0.0, STEP_S - (time.monotonic() - begun)))
        loss.backward()
        exchange()
        optimizer.step()

    with (folder / f"{os.getpid()}.steps").open("a", buffering=1) as log:
        trainer = {"bftrain": train_bftrain, "torchrun": train_torchrun, "torchft": train_torchft}[system]
        trainer(model, optimizer, run_step, lambda step, size: log.write(f"{time.time():.3f} {step} {size}\n"), folder)


def train_bftrain(model: Any, optimizer: Any, run_step: Any, count: Any, _: Path) -> None:
    """Train in a state that commits each step."""
    from bftrain_elastic import State, run

    def loop(state: State) -> None:
        wrapped = state.parallel()
        while True:
            run_step(wrapped, optimizer)
            state.commit()
            count(state.step, state.workers)

    run(State(model=model, optimizer=optimizer), loop)


def train_torchrun(model: Any, optimizer: Any, run_step: Any, count: Any, folder: Path) -> None:
    """Train in DistributedDataParallel, from the latest checkpoint."""
    import torch

    torch.distributed.init_process_group("gloo")
    file, unfinished, step = folder / "checkpoint", folder / "checkpoint.new", 0
    if file.exists():
        step = restore(model, optimizer, torch.load(file, weights_only=True))
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    while True:
        run_step(wrapped, optimizer)
        step += 1
        count(step, torch.distributed.get_world_size())
        if torch.distributed.get_rank() == 0 and step % 10 == 0:
            torch.save((model.state_dict(), optimizer.state_dict(), step), unfinished)
            unfinished.replace(file)


def restore(model: Any, optimizer: Any, saved: Sequence[Any]) -> Any:
    """Load model and optimizer; return the last of the saved values."""
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    return saved[-1]


def train_torchft(model: Any, optimizer: Any, run_step: Any, count: Any, _: Path) -> None:
    """Train with torchft's manager and optimizer."""
    from torchft import Manager, Optimizer, ProcessGroupGloo

    values = (lambda one: restore(model, optimizer, one)), (lambda: (model.state_dict(), optimizer.state_dict()))
    group, here = ProcessGroupGloo(timeout=timedelta(seconds=5)), "127.0.0.1"
    manager = Manager(group, *values, min_replica_size=1, replica_id=f"worker_{os.getpid()}", hostname=here)
    guarded = Optimizer(manager, optimizer)

    def exchange() -> None:  # torchft 0.2's DistributedDataParallel fails survivors when Gloo loses a worker
        for work in [manager.allreduce(one.grad) for one in model.parameters()]:
            work.wait()

    while True:
        before = manager.current_step()
        run_step(model, guarded, exchange)
        if manager.current_step() > before:
            count(manager.current_step(), manager.num_participants())


@contextmanager
def running(system: str, folder: Path) -> Iterator[Callable[[int], object]]:
    """Yield a function that sets the number of a system's workers; dead ones are restarted."""
    words = [__file__, "--worker", system, str(folder)]
    if system == "bftrain":
        from bftrain.registry import load
        from bftrain_elastic.tryout.try_script import ScriptTrial

        with ScriptTrial(load("launcher", "native"), words, nodes=max(RESIZES)) as trial:
            trial.until(trial.is_warm, TIMEOUT_S)
            yield trial.resize
        return
    from torch.distributed import TCPStore

    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False) if system == "torchrun" else None
    meeting = ["--standalone"] if store is None else [*RDZV, f"--rdzv-endpoint=127.0.0.1:{port}"]
    command = [str(PEERS / "torchrun"), "--max-restarts=1000", "--local-addr=127.0.0.1", *meeting, *words]
    environment = os.environ | {"TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
    if system == "torchrun":  # otherwise agents that join later time out in torch 2.13; torchft needs the shared store
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"

    def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (folder / "log").open("ab") as log:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        return started[-1]

    def resize(size: int) -> None:
        for node in nodes[size:]:
            node.terminate()  # SIGTERM, which schedulers send
        nodes[:] = [*nodes[:size], *(start(command) for _ in range(size - len(nodes)))]

    server = [str(PEERS / "torchft_lighthouse"), f"--bind=[::]:{port}", *LIGHTHOUSE]
    started, nodes = list[subprocess.Popen[bytes]](), list[subprocess.Popen[bytes]]()
    if system == "torchft":
        start(server)
    try:
        yield resize
    finally:
        for one in started:
            one.terminate()
        for one in started:
            try:
                one.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:  # torchrun at times ignores SIGTERM while workers restart
                one.kill()
                one.wait()


def experiment(system: str, folder: Path, minutes: float) -> list[tuple[float, str]]:
    """Resize and then kill workers; return the time and name of each change, with ``end`` as the last."""
    changes, dice, size = list[tuple[float, str]](), random.Random(1), NODES
    with running(system, folder) as resize:
        resize(NODES)
        settle(folder, NODES)
        for after in RESIZES:
            changes.append((time.time(), f"{size}->{after}"))
            resize(size := after)
            settle(folder, size)
        for _ in range(max(1, round(minutes * 60 / INTERVAL_S))):
            changes.append((time.time(), "kill"))
            while not (pids := living(folder)):
                time.sleep(STEP_S)
            os.kill(dice.choice(pids), signal.SIGKILL)
            time.sleep(INTERVAL_S)
    return [*changes, (time.time(), "end")]


def settle(folder: Path, size: int) -> None:
    """Wait for a step by ``size`` workers, and train on for a while."""
    since = time.time()
    while time.time() < since + TIMEOUT_S and size not in {one[2] for one in steps_of(folder) if one[0] > since}:
        time.sleep(0.1)
    time.sleep(REST_S)


def living(folder: Path) -> list[int]:
    """Return the workers that made a step recently; another process may have the number of a dead one."""
    recent = [log for log in folder.glob("*.steps") if time.time() - log.stat().st_mtime < 20 * STEP_S]
    return [int(log.stem) for log in recent if Path("/proc", log.stem).exists()]


def steps_of(folder: Path) -> list[tuple[float, int, int]]:
    """Return the time, number and workers of all logged steps, in the sequence of time."""
    lines = [one.split() for log in folder.glob("*.steps") for one in log.read_text().rpartition("\n")[0].splitlines()]
    return sorted((float(at), int(step), int(workers)) for at, step, workers in lines)


def figures(steps: Sequence[tuple[float, int, int]], changes: Sequence[tuple[float, str]]) -> Iterator[str]:
    """Yield a line for each kind of change, and one for the throughput under faults."""
    new, repeats, latest, latest_at = list[tuple[float, int]](), list[tuple[float, int]](), 0, 0.0
    for at, step, workers in steps:
        if step > latest:
            new.append((at, workers))
            latest, latest_at = step, at
        elif step < latest or at - latest_at > 2 * STEP_S:  # not another worker's line of the same step
            repeats.append((at, step))
    rows: dict[str, list[tuple[float, int]]] = {}
    for (start, name), (end, _) in pairwise(changes):
        times = [start, *(at for at, _ in new if start < at < end), end]
        pause = max(after - before for before, after in pairwise(times)) - STEP_S
        rows.setdefault(name, []).append((pause, len({step for at, step in repeats if start < at < end})))
    for name, pauses in rows.items():
        middle, worst, repeated = median(one[0] for one in pauses), max(pauses)[0], sum(one[1] for one in pauses)
        yield f"  {name}, {len(pauses)} x: pause {middle:.2f} s (worst {worst:.2f} s), {repeated} steps repeated"
    kills, end = [at for at, name in changes if name == "kill"], changes[-1][0]
    calm = [start for start, _ in new if any(0 < at - start < REST_S for at in kills)]
    step_s = mean(after - before for before, after in pairwise(calm) if after - before < INTERVAL_S - REST_S)
    kept = sum(workers for at, workers in new if kills[0] < at < end) / NODES * step_s / (end - kills[0])
    yield f"  throughput kept: {kept:.1%} (undisturbed steps of {step_s:.3f} s)"


def main() -> None:
    """Compare the systems."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="duration of the faults (%(default)g)")
    options = parser.parse_args()
    pip = [str(PEERS / "python"), "-m", "pip", "install", "-q"]
    subprocess.run([sys.executable, "-m", "venv", str(PEERS.parent)], check=True)
    subprocess.run([*pip, torch := f"torch=={version('torch').partition('+')[0]}", "numpy"], check=True)
    done = subprocess.run([*pip, "torchft", torch], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stdout.write(f"torchft cannot be installed: {done.stderr.strip()}\n")
    for system in ("bftrain", "torchrun", "torchft")[: 2 if done.returncode else 3]:
        with tempfile.TemporaryDirectory(prefix=f"bftrain-peers-{system}-") as name:
            changes = experiment(system, folder := Path(name), options.minutes)
            sys.stdout.write("\n".join([system, *figures(steps_of(folder), changes), ""]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        train(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
