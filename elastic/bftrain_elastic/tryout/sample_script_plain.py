"""A sample training script without torch, for launchers that restart the program at each change of size.

It only counts: rank 0 does all the work, and the other ranks wait until it is done. It tests a launcher at no cost and
needs the standard library only: ``python sample_script_plain.py --steps 100``.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from bftrain_elastic import State, report, run


def main() -> None:
    """Count, or fail as its arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-s", type=float, default=0.005, help="how long a step takes")
    parser.add_argument("--fail", action="store_true", help="die at the start")
    arguments = parser.parse_args()
    if arguments.fail:
        raise ValueError("as it was asked to")
    over = Path(os.environ.get("BFTRAIN_FOLDER", ".")) / "over"
    if os.environ.get("RANK", "0") != "0":
        while not over.exists():
            time.sleep(arguments.step_s)
        return
    os.environ["WORLD_SIZE"] = "1"  # the others are no help

    def train(state: State) -> None:
        while state.position < arguments.steps:
            time.sleep(arguments.step_s)
            state.position += 1
            report(samples=1, loss=1 / state.position)
            state.commit()

    run(State(position=0), train)
    if "BFTRAIN_FOLDER" in os.environ:
        over.touch(mode=0o600)


if __name__ == "__main__":
    main()
