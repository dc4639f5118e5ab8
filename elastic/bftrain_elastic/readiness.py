"""Readiness: can a script be resized while it runs? It is run on this machine, on 1, 2 and 1 nodes, and watched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean
from typing import Final

from bftrain_elastic.messages import Message
from bftrain_elastic.trying import Trying

SIZES: Final = (1, 2, 1)
STEPS: Final = 20  # at each size
_FALLING: Final = 0.02  # relative: what a loss may rise by chance


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``fix`` says what to do if it is not ``ok``."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def findings(trying: Trying, *, steps: int = STEPS, patience_s: float = 60.0) -> Iterator[Finding]:
    """Run a script at the sizes 1, 2 and 1, and say what was seen."""
    reached = _run(trying, steps, patience_s)
    lines = trying.lines()
    failed = next((one["reason"] for one in trying.told if one["told"] == "failed"), "")
    if failed:
        yield Finding("runs", ok=False, detail=failed, fix="repair what it says, and try it alone first: python SCRIPT")
    yield _reports(lines)
    yield _commits(trying.told)
    yield _resizes(trying.told, reached)
    if len(reached) > 1:
        yield _keeps_progress(lines)
        yield _loss_falls(lines)


def _run(trying: Trying, steps: int, patience_s: float) -> list[int]:
    """Give the sizes at which the script did its steps, in order."""
    reached = []
    trying.warm_up()
    for size in SIZES:
        trying.resize(size)
        if not trying.steps(size, steps, patience_s):
            break
        reached.append(size)
    return reached


def _reports(lines: Sequence[Message]) -> Finding:
    if not lines:
        fix = "call report(samples=..., loss=...) once a step: from bftrain_elastic import report"
        return Finding("reports", ok=False, detail="no step was reported", fix=fix)
    if all(one["loss"] is None for one in lines):
        return Finding("reports", ok=False, detail="steps without a loss", fix="report(samples=..., loss=loss)")
    return Finding("reports", ok=True, detail=f"{len(lines)} steps, {lines[-1]['samples']} samples each")


def _commits(told: Sequence[Message]) -> Finding:
    if not any(one["told"] in {"committed", "saved"} for one in told):
        fix = "call state.commit() where it is safe to stop, best after each step"
        return Finding("commits", ok=False, detail="nothing was committed", fix=fix)
    return Finding("commits", ok=True, detail="its state is kept")


def _resizes(told: Sequence[Message], reached: Sequence[int]) -> Finding:
    if list(reached) == list(SIZES):
        return Finding("resizes", ok=True, detail=f"trained on {' -> '.join(map(str, reached))} nodes")
    confirmed = [one["size"] for one in told if one["told"] == "confirmed"]
    got = " -> ".join(map(str, reached)) or "none"
    fix = "put the training into run(state, train), and see its output in the folder's logs"
    if confirmed and len(reached) < len(confirmed):
        fix = "more steps are needed to see it: let the script train longer"
    return Finding("resizes", ok=False, detail=f"of the sizes 1, 2, 1 it trained at: {got}", fix=fix)


def _keeps_progress(lines: Sequence[Message]) -> Finding:
    back = [(one["step"], other["step"]) for one, other in pairwise(lines) if other["step"] <= one["step"]]
    if back:
        fix = "begin train() at what the state says, not at 0: while state.position < STEPS"
        return Finding(
            "keeps its progress", ok=False, detail=f"steps were done again: {back[0][0]} -> {back[0][1]}", fix=fix
        )
    return Finding("keeps its progress", ok=True, detail=f"steps 1 to {lines[-1]['step']}, none done again")


def _loss_falls(lines: Sequence[Message]) -> Finding:
    losses = [float(one["loss"]) for one in lines if one["loss"] is not None]
    third = len(losses) // 3
    if not third:
        return Finding(
            "goes on learning", ok=False, detail="too few losses to tell", fix="report(samples=..., loss=loss)"
        )
    first, last = mean(losses[:third]), mean(losses[-third:])
    if last > first + abs(first) * _FALLING:
        fix = "see that model and optimizer are in the state, and that train() does not make them anew"
        return Finding("goes on learning", ok=False, detail=f"the loss rises: {first:.4g} -> {last:.4g}", fix=fix)
    return Finding("goes on learning", ok=True, detail=f"loss {first:.4g} -> {last:.4g}")
