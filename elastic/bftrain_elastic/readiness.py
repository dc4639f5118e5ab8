"""Readiness: can a script be resized while it runs? It is run on this machine, on 1, 2 and 1 nodes, and watched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Final

from bftrain_elastic.messages import Message
from bftrain_elastic.trying import Trying

SIZES: Final = (1, 2, 1)
STEPS: Final = 20  # at each size
_FALLING: Final = 0.02  # relative: what a loss may rise by chance
_POLL_S: Final = 0.1

RUN: Final = "put the training into run(state, train), as docs/elastic.md shows"
REPORT: Final = "call report(samples=..., loss=...) once a step: from bftrain_elastic import report"
COMMIT: Final = "call state.commit() where it is safe to stop, best after each step"
LOSS: Final = "give the loss too: report(samples=..., loss=loss)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``fix`` says what to do if it is not ``ok``."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def watch(trying: Trying, *, steps: int, patience_s: float, stopped: Callable[[], bool]) -> list[int]:
    """Run a script at the sizes 1, 2 and 1; gives those at which it did its steps, in order."""
    reached = []
    for size in SIZES:
        since, deadline = len(trying.told), time.monotonic() + patience_s
        trying.resize(size)
        while trying.count(size, since) < steps and not stopped() and time.monotonic() < deadline:
            if trying.until(lambda size=size, since=since: trying.count(size, since) >= steps, _POLL_S):  # type: ignore[misc]  # bound at once
                break
        if trying.count(size, since) < steps:
            break
        reached.append(size)
    return reached


def findings(told: Sequence[Message], reached: Sequence[int], script: Path) -> Iterator[Finding]:
    """Say what was seen of a script that was watched; the first of several things that follow from each other."""
    lines = [one for one in told if one["told"] == "report"]
    runs = _runs(told, script)
    if runs is not None:
        yield runs
    if lines or runs is None:
        yield _reports(lines)
        yield _commits(told)
        yield _resizes(told, reached)
    if len(reached) > 1:
        if runs is None:  # or that is why steps are done again
            yield _keeps_progress(lines)
        yield _loss_falls(lines)


def advice(reason: str, script: Path) -> str:
    """Say what to do about a script that fails with ``reason``."""
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    if "never called" in reason:
        if "hvd.elastic" in text and "bftrain_elastic.run" in reason:
            return "it is for Horovod: --backend horovod"
        if "State(" in text and "hvd.elastic" in reason:
            return "it is for plain PyTorch: --backend native"
        return f"{RUN}; a program that cannot be resized needs --backend process"
    return "repair what it says, and try it alone first: python SCRIPT"


def last_line(reason: str) -> str:
    """Give what a reason ends with: of a traceback the error itself."""
    return reason.strip().rpartition("\n")[2].strip()


def _runs(told: Sequence[Message], script: Path) -> Finding | None:
    """Say why it does not run, or not for long; nothing if it does."""
    failed = next((one["reason"] for one in told if one["told"] == "failed"), "")
    if failed:
        first = failed.partition("\n")[0]
        detail = first if "never called" in first else last_line(failed)
        return Finding("runs", ok=False, detail=detail, fix=advice(failed, script))
    deaths = [one["text"] for one in told if one["told"] == "note" and "started again" in one["text"]]
    if deaths:
        return Finding("runs", ok=False, detail=deaths[0], fix="repair what it says: it died by itself")
    return None


def _reports(lines: Sequence[Message]) -> Finding:
    if not lines:
        return Finding("reports", ok=False, detail="no step was reported", fix=REPORT)
    if all(one["loss"] is None for one in lines):
        return Finding("reports", ok=False, detail="steps without a loss", fix=LOSS)
    return Finding("reports", ok=True, detail=f"{len(lines)} steps, {lines[-1]['samples']} samples each")


def _commits(told: Sequence[Message]) -> Finding:
    if any(one["told"] in {"committed", "saved"} for one in told):
        return Finding("commits", ok=True, detail="its state is kept")
    started = any(one["told"] == "confirmed" for one in told)
    return Finding("commits", ok=False, detail="nothing was committed", fix=COMMIT if started else f"{RUN}; {COMMIT}")


def _resizes(told: Sequence[Message], reached: Sequence[int]) -> Finding:
    if list(reached) == list(SIZES):
        return Finding("resizes", ok=True, detail=f"trained on {' -> '.join(map(str, reached))} nodes")
    confirmed = [one["size"] for one in told if one["told"] == "confirmed"]
    got = " -> ".join(map(str, reached)) or "none"
    if any(one["told"] == "done" for one in told) or len(reached) < len(confirmed):
        fix = "more steps are needed to see it: let the script train longer"
    elif not any(one["told"] in {"committed", "saved"} for one in told):
        fix = "it can change only where it commits"
    else:
        fix = "see what it says: bftrain train -v"
    return Finding("resizes", ok=False, detail=f"of the sizes 1, 2, 1 it trained at: {got}", fix=fix)


def _keeps_progress(lines: Sequence[Message]) -> Finding:
    back = [(one["step"], other["step"]) for one, other in pairwise(lines) if other["step"] <= one["step"]]
    if back:
        fix = "begin train() at what the state says, not at 0: while state.position < STEPS"
        detail = f"steps were done again: {back[0][0]} -> {back[0][1]}"
        return Finding("keeps its progress", ok=False, detail=detail, fix=fix)
    return Finding("keeps its progress", ok=True, detail=f"steps 1 to {lines[-1]['step']}, none done again")


def _loss_falls(lines: Sequence[Message]) -> Finding:
    losses = [float(one["loss"]) for one in lines if one["loss"] is not None]
    third = len(losses) // 3
    if not third:
        return Finding("goes on learning", ok=False, detail="too few losses to tell", fix=LOSS)
    first, last = mean(losses[:third]), mean(losses[-third:])
    if last > first + abs(first) * _FALLING:
        fix = "see that model and optimizer are in the state, and that train() does not make them anew"
        return Finding("goes on learning", ok=False, detail=f"the loss rises: {first:.4g} -> {last:.4g}", fix=fix)
    return Finding("goes on learning", ok=True, detail=f"loss {first:.4g} -> {last:.4g}")
