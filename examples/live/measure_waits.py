"""Measure how much longer jobs of the main queue wait because of harvesting.

Run it as the operator of a live run beside Slurm, on a machine with Slurm's commands, while tasks train:

    python examples/live/measure_waits.py --jobs 100 --partition main

Blocks of probe jobs with harvesting alternate with blocks without it. One probe job at a time is in the queue; it asks
for whole nodes, writes its start time to ``--folder``, which all nodes must see, and exits. All clocks must agree.
Ctrl-C ends the measurement early. Harvesting then continues, unless it was paused before; if this script is killed,
it continues automatically.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from bftrain import Client, NotAvailable

GOLDEN = (5**0.5 - 1) / 2  # its multiples cover all phases of the scheduler's cycle evenly
LEAST_PAIRS = 4  # fewer pairs of blocks give no confidence interval


def main() -> None:
    """Measure, and print the results."""
    options = parsed()
    client = Client()
    if options.partition in client.harvesting().partitions:
        raise SystemExit(f"pilots run in the partition {options.partition}: name the one of other users' jobs")
    waits: dict[bool, list[list[float]]] = {False: [], True: []}
    blocks = -(-options.jobs // options.block)
    before, problem = client.harvesting(), ""
    with tempfile.TemporaryDirectory(prefix=".measure-waits-", dir=Path(options.folder).resolve()) as folder:
        try:
            for pair in range(blocks):
                count = min(options.block, options.jobs - pair * options.block)
                found: dict[bool, list[float]] = {}
                for harvesting in (False, True) if pair % 2 == 0 else (True, False):
                    switch(client, options, harvesting=harvesting)
                    found[harvesting] = []
                    for number in range(count):
                        if not harvesting:  # extend the pause, which expires if this script is killed
                            client.pause_harvesting(options.patience + 300.0)
                        time.sleep(options.gap * (1 + (pair * options.block + number) * GOLDEN % 1))
                        found[harvesting].append(wait_of_probe(options, Path(folder)))
                    print(f"{'with' if harvesting else 'without'} harvesting: {count} jobs", flush=True)  # noqa: T201
                for harvesting, block in found.items():
                    waits[harvesting].append(block)
        except KeyboardInterrupt:
            print("interrupted: the figures are those of the whole pairs of blocks until then")  # noqa: T201
        except NotAvailable as error:  # report the measurements so far first
            problem = str(error)
        finally:
            subprocess.run(["scancel", "--quiet", "--me", f"--name=measure-waits-{os.getpid()}"], check=False)  # noqa: S603, S607
            restore(client, paused=before.paused, until_s=before.until_s)
    report(client, waits)
    if problem:
        raise SystemExit(f"{problem}: the figures are those of the whole pairs of blocks until then")


def parsed() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100, help="probe jobs with, and as many without harvesting")
    parser.add_argument("--block", type=int, default=10, help="jobs in a block")
    parser.add_argument("--nodes", type=int, default=1, help="nodes of a probe job")
    parser.add_argument("--partition", required=True, help="the partition of other users' jobs, not of the pilots")
    parser.add_argument("--option", action="append", default=[], help="another option of sbatch; may be repeated")
    parser.add_argument("--gap", type=float, default=1.0, help="seconds between two jobs, up to twice as many")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds after which a wait is an error")
    parser.add_argument("--steady", type=float, default=3.0, help="seconds without a change of the pool before a block")
    parser.add_argument("--folder", default=".", help="a folder that all nodes see")
    return parser.parse_args()


def switch(client: Client, options: argparse.Namespace, *, harvesting: bool) -> None:
    """Resume or pause harvesting, and wait until the pool has been the same for ``--steady`` seconds."""
    client.resume_harvesting() if harvesting else client.pause_harvesting(options.patience + 300.0)
    deadline, steady, pool = time.monotonic() + 180.0, time.monotonic(), -1
    while True:
        status, now = client.status(), time.monotonic()
        if status.pool != pool:
            steady, pool = now, status.pool
        ready = pool > 0 if harvesting else not pool and not client.harvesting().waiting_pilots
        if ready and now - steady >= options.steady:
            return
        if now > deadline:
            raise NotAvailable(
                "no node is harvested" if harvesting else "nodes are not handed back", fix="run bftrain status"
            )
        time.sleep(min(0.5, options.steady))


def restore(client: Client, *, paused: bool, until_s: float | None) -> None:
    """Resume harvesting, or pause it as its operator had."""
    left_s = None if until_s is None else until_s - time.time()
    if paused and (left_s is None or left_s > 0):
        client.pause_harvesting(left_s)
    else:
        client.resume_harvesting()


def wait_of_probe(options: argparse.Namespace, folder: Path) -> float:
    """Submit a probe job; return the seconds until it has started."""
    started, part = folder / "started", folder / "part"
    words = ["sbatch", f"--job-name=measure-waits-{os.getpid()}", f"--partition={options.partition}", "--exclusive"]
    words += [f"--nodes={options.nodes}", "--time=1", "--output=/dev/null", *options.option]
    draft, final = shlex.quote(str(part)), shlex.quote(str(started))
    script = f"#!/bin/sh\ndate +%s.%N >{draft} && mv {draft} {final}\n"
    subprocess.run(words, input=script, text=True, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - no shell
    submitted, deadline = time.time(), time.monotonic() + options.patience
    while not started.exists():
        if time.monotonic() > deadline:
            raise NotAvailable(f"a probe job has waited for {options.patience:g} s", fix="measure in a calmer hour")
        os.listdir(folder)  # noqa: PTH208 - NFS looks for new files then
        time.sleep(0.01)
    wait_s = float(started.read_text()) - submitted
    started.unlink()
    return wait_s


def report(client: Client, waits: dict[bool, list[list[float]]]) -> None:
    """Print the waits, their differences with 95 % confidence intervals, and the hand-back times of nodes.

    Neighbouring waits are similar, so the intervals resample whole pairs of blocks.
    """
    pairs, dice = len(waits[True]), np.random.default_rng(0)
    if not pairs:
        return
    for name, level in (("median", 0.5), ("95th percentile", 0.95)):

        def of(harvesting: bool, rows: np.ndarray, level: float = level) -> float:  # noqa: FBT001 - a key of waits
            return float(np.quantile(np.concatenate([waits[harvesting][row] for row in rows]), level))

        rows = np.arange(pairs)
        before, after = of(False, rows), of(True, rows)  # noqa: FBT003 - as above
        text = f"{name}: {before:.3f} s without, {after:.3f} s with harvesting, {after - before:+.3f} s"
        if pairs >= LEAST_PAIRS:
            draws = [dice.choice(rows, pairs) for _ in range(2000)]
            low, high = np.quantile([of(True, drawn) - of(False, drawn) for drawn in draws], (0.025, 0.975))  # noqa: FBT003
            text += f" (95 % confidence: {low:+.3f} to {high:+.3f} s)"
        print(text)  # noqa: T201 - its result
    took = [one.kill_s + one.exit_s for one in client.harvesting().handbacks]
    if took:
        print(f"SIGTERM to free node: {np.median(took):.3f} s median, {max(took):.3f} s longest")  # noqa: T201


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
