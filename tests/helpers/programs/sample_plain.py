"""A sample training script without torch, for launchers that restart the program at each change of size.

It only counts: rank 0 does all the work, and the other ranks wait until it is done. It tests a launcher at no cost and
needs the standard library only: ``python sample_plain.py --steps 100``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from sample_torch import sample_arguments

from bftrain_elastic import State, report, run


def main() -> None:
    """Count, or fail as its arguments say."""
    arguments = sample_arguments(__doc__ or "")
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
