"""Readiness check: runs a script on this machine, and observes whether it can be resized while it runs.

The script gets one node, then a second one, and then loses the first, which destroys any state that only the first
worker has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import mean
from typing import Final, NamedTuple

from bftrain_elastic.errors import OWN_ERROR
from bftrain_elastic.manager.task_lifecycles.supervision import DRIFT
from bftrain_elastic.tryout.try_script import ScriptTrial
from bftrain_elastic.wire.messages import Message

NODES: Final = ((1,), (1, 2), (2,))  # the sequence of node sets
SIZES: Final = tuple(map(len, NODES))
STEPS: Final = 20  # steps at each size
_STALL: Final = "no step for "  # prefix of notes about stalled scripts
_FALLING: Final = 0.02  # relative increase of a loss that may be chance
_POLL_S: Final = 0.02
_COMPARED: Final = 3  # number of compared steps before workers count as identical

RUN: Final = "put the training into run(state, train), as docs/how-to/elastic.md shows"
REPORT: Final = "call report(samples=..., loss=...) once a step: from bftrain_elastic import report"
COMMIT: Final = "call state.commit() where it is safe to stop, best after each step"
GO_ON: Final = "start train() at the position in the state, not at 0: while state.position < STEPS"
CHECKPOINT: Final = (
    "on SIGTERM, write a checkpoint to the folder BFTRAIN_FOLDER; at the start, load it and count from it: "
    "report(..., step=...); or use State and run()"
)
SHARE: Final = (
    "give each worker its share of a batch: mine, weight = state.share(N), an ElasticLoader, or a DistributedSampler"
)
_GROUP: Final = "use init_process_group, DistributedDataParallel and DistributedSampler: ranks are in the environment"
TOGETHER: Final = {  # fix that exchanges the gradients and divides the data, by the caller of the optimizer
    "transformers": "give the Trainer an ElasticCallback of bftrain_elastic.huggingface, and use --launcher process",
    "lightning": "give the Trainer an ElasticCallback of bftrain_elastic.lightning, and use --launcher process",
    "accelerate": "make the Accelerator in train(state), and use --launcher process",
    "horovod": "use hvd.DistributedOptimizer(optimizer, named_parameters=...), and part hvd.rank() of each batch",
    "process": _GROUP,
    "": f"train with model = state.parallel(), and {SHARE}",
}
OWN_GROUP: Final = "it forms a process group of its own, but with this launcher bftrain forms the groups"
OWN_GROUP_FIX: Final = (
    "change it as 'From a DDP script' in docs/how-to/elastic.md shows, or run it unchanged with --launcher process"
)
_OWN_GROUP_SIGNS: Final = (
    *("never called", "process group twice", "using env:// rendezvous: environment variable"),
    *("KeyError: 'RANK'", "KeyError: 'LOCAL_RANK'", "KeyError: 'WORLD_SIZE'"),
)
SILENCE_S: Final = 15.0  # warn if the script has reported no step by then
SILENCE: Final = f"no step was reported in {SILENCE_S:.0f} s: {REPORT}; or see its output with bftrain train -v"
LOSS: Final = "report the loss as well: report(samples=..., loss=loss)"


@dataclass(frozen=True, slots=True)
class ReadinessFinding:
    """One finding; ``fix`` is the remedy if it is not ``ok``."""

    name: str
    ok: bool = field(init=False)
    detail: str
    fix: str = ""

    def __post_init__(self) -> None:
        """Set ``ok`` if there is no fix."""
        object.__setattr__(self, "ok", not self.fix)


@dataclass(slots=True)
class WatchedRun:
    """Observations of a script in addition to its messages: the sizes at which it made steps, and step records."""

    reached: list[int] = field(default_factory=list)
    steps: list[list[Message]] = field(default_factory=list)  # records of the steps in groups, of each process


def watch(
    trying: ScriptTrial, *, steps: int, patience_s: float, stopped: Callable[[], bool], warn: Callable[[str], None]
) -> WatchedRun:
    """Run a script on each of the node sets until it has made ``steps`` steps there; stop at the first set where not.

    ``patience_s`` is the limit for each set, and ``warn`` is called if no step is reported for long.
    """
    seen, silent_at = WatchedRun(), time.monotonic() + SILENCE_S
    for nodes in NODES:
        size, since, deadline = len(nodes), len(trying.messages), time.monotonic() + patience_s
        trying.hold(*nodes)
        while trying.count(size, since) < steps and not stopped() and time.monotonic() < deadline:
            if trying.until(lambda size=size, since=since: trying.count(size, since) >= steps, _POLL_S):  # type: ignore[misc]  # bound at once
                break
            if _notes(trying.messages[since:], _STALL):
                break
            if time.monotonic() > silent_at:
                silent_at = inf
                if trying.is_silent:
                    warn(SILENCE)
        if trying.count(size, since) < steps:
            break
        seen.reached.append(size)
    seen.steps = trying.step_records()
    return seen


def _notes(messages: Sequence[Message], beginning: str) -> list[str]:
    return [one["text"] for one in messages if one["type"] == "note" and one["text"].startswith(beginning)]


def findings(
    messages: Sequence[Message], seen: WatchedRun, script: Path, *, restarts: bool = False
) -> Iterator[ReadinessFinding]:
    """Yield the findings on an observed script; of findings with a common cause only the first one.

    With a launcher that ``restarts`` the script, it may use its own checkpoints instead of commits.
    """
    reached = seen.reached
    lines = [one for one in messages if one["type"] == "report"]
    runs = _runs(messages, script)
    if runs is not None:
        yield runs
    if lines or runs is None:
        yield _reports(lines)
    commits = _commits(messages)
    own_checkpoints = restarts and not commits.ok
    if lines and not own_checkpoints:
        yield commits
    if lines:
        yield _resizes(messages, reached)
    yield from _keeps_going(messages)
    if len(reached) > 1 and runs is None:  # otherwise ``runs`` explains the repeated steps
        yield _keeps_progress(lines, CHECKPOINT if own_checkpoints else GO_ON)
    yield from _works_together(messages, seen)
    if len(reached) > 1 or any(one.get("nan") for one in lines):
        yield _loss_falls(lines)


class ScriptFailure(NamedTuple):
    """The reason for a script's failure, the fix, and its last output where it helps."""

    what: str
    fix: str
    output: Sequence[str]


def explain(reason: str, script: Path) -> ScriptFailure:
    """Explain why a script fails with ``reason``."""
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    first, *output = [line for line in reason.splitlines() if line.strip() and not line.startswith("Traceback (most")]
    if "init_process_group" in text and any(sign in reason for sign in _OWN_GROUP_SIGNS):
        return ScriptFailure(OWN_GROUP, OWN_GROUP_FIX, ())
    if "never called" not in first:
        last, fix = split_fix(last_line(reason))
        return ScriptFailure(
            f"it failed: {last}", fix or "fix this error, and run the script alone first: python SCRIPT", output
        )
    fix = f"{RUN}; a program that cannot be resized needs --launcher process"
    if "hvd.elastic" in text and "bftrain_elastic.run" in first:
        fix = "it is for Horovod: --launcher horovod"
    if "State(" in text and "hvd.elastic" in first:
        fix = "it is for plain PyTorch: --launcher native"
    return ScriptFailure(first, fix, output)


def last_line(reason: str) -> str:
    """Return the last line of a reason: of a traceback the error itself."""
    return reason.strip().rpartition("\n")[2].strip()


def split_fix(line: str) -> tuple[str, str]:
    """Split the last line of a bftrain error into the problem and its fix, which is in the last brackets."""
    depth = 0
    if line.startswith(OWN_ERROR) and line.endswith(")"):
        for place in range(len(line) - 1, 0, -1):
            depth += (line[place] == ")") - (line[place] == "(")
            if not depth:
                return line[:place].partition(": ")[2].strip(), line[place + 1 : -1]
    return line, ""


def _runs(messages: Sequence[Message], script: Path) -> ReadinessFinding | None:
    """Return the reason if it does not run or stops early; ``None`` if it runs."""
    failed = next((one["reason"] for one in messages if one["type"] == "failed"), "")
    if failed:
        what, fix, _ = explain(failed, script)
        return ReadinessFinding("runs", what, fix)
    notes = [one["text"] for one in messages if one["type"] == "note" and not one["text"].startswith(_STALL)]
    deaths = [text for text in notes if "started again" in text]
    if deaths:
        death, _, error = deaths[0].removesuffix("; it is started again").removesuffix(")").partition(" (")
        what, fix = split_fix(error)
        if fix:
            return ReadinessFinding("runs", f"{death}: {what}", fix)
        return ReadinessFinding("runs", deaths[0], "fix this error: the script stopped")
    return None


def _reports(lines: Sequence[Message]) -> ReadinessFinding:
    if not lines:
        return ReadinessFinding("reports", "no step was reported", REPORT)
    if all(one["loss"] is None and not one.get("nan") for one in lines):
        return ReadinessFinding("reports", "steps with no reported loss", LOSS)
    return ReadinessFinding("reports", f"{len(lines)} steps, {lines[-1]['samples']} samples each")


def _commits(messages: Sequence[Message]) -> ReadinessFinding:
    kinds = {one["type"] for one in messages}
    if kinds & {"in_memory", "on_disk"}:
        return ReadinessFinding("commits", "its state is kept")
    fix = COMMIT if "confirmed" in kinds else f"{RUN}; {COMMIT}"
    return ReadinessFinding("commits", "nothing was committed", fix)


def _resizes(messages: Sequence[Message], reached: Sequence[int]) -> ReadinessFinding:
    if list(reached) == list(SIZES):
        return ReadinessFinding("resizes", f"trained on {' -> '.join(map(str, reached))} nodes")
    confirmed = [one["size"] for one in messages if one["type"] == "confirmed"]
    got = " -> ".join(map(str, reached)) or "none"
    if _notes(messages, _STALL):
        fix = "see why its steps stopped"
    elif any(one["type"] == "done" for one in messages) or len(reached) < len(confirmed):
        fix = "more steps are needed to see it: let the script train longer"
    elif not any(one["type"] in {"in_memory", "on_disk"} for one in messages):
        fix = "it can change only where it commits"
    else:
        fix = "see its output: bftrain train -v"
    return ReadinessFinding("resizes", f"of the sizes 1, 2, 1 it trained at: {got}", fix)


def _keeps_going(messages: Sequence[Message]) -> Iterator[ReadinessFinding]:
    for text in _notes(messages, _STALL)[-1:]:
        if "state.commit()" in text:
            fix = "let every worker call state.commit() equally often: not inside of 'if state.rank == 0'"
        else:
            fix = "every worker must take part in collective operations; with bftrain train --folder the logs are kept"
        yield ReadinessFinding("keeps going", text.partition("; the stacks")[0], fix)


def _works_together(messages: Sequence[Message], seen: WatchedRun) -> Iterator[ReadinessFinding]:
    """Yield whether all workers train one model, each on its own data."""
    pairs = list(zip(*seen.steps, strict=False)) if len(seen.steps) == max(SIZES) else []
    if len(pairs) >= _COMPARED:
        where, caller = pairs[0][0]["where"]
        place = f"{len(pairs)} steps{f': optimizer.step() at {where}' if where else ''}"
        exchanges = any(one["exchanges"] for pair in pairs for one in pair)
        same_inputs, same_weights = (
            [one[name] == other[name] for one, other in pairs] for name in ("inputs", "weights")
        )
        if all(same_inputs) and all(same_weights) and _is_telling(pairs):
            what = f"all workers computed the same, so more nodes do not help, in {place}"
            yield ReadinessFinding("divides the work", what, SHARE if exchanges else TOGETHER.get(caller, TOGETHER[""]))
            return
        if not exchanges and not any(same_inputs[1:]) and not any(same_weights[1:]):
            what = f"each worker trains a model of its own: no gradients were exchanged in {place}"
            yield ReadinessFinding("workers agree", what, TOGETHER.get(caller, TOGETHER[""]))
            return
        yield ReadinessFinding("divides the work", "each worker trains on its own data")
    drift = next(iter(_notes(messages, DRIFT)), "")
    if drift or len(seen.reached) > 1:
        detail, _, fix = drift.removesuffix(")").partition(" (")
        yield ReadinessFinding("workers agree", detail or "their models are the same", fix)


def _is_telling(pairs: Sequence[Sequence[Message]]) -> bool:
    """Return whether equal inputs mean equal work: not if all samples are equal."""
    differ = [one["rows_differ"] for one, _ in pairs]
    return any(differ) or (differ.count(None) == len(pairs) and len({one["inputs"] for one, _ in pairs}) > 1)


def _keeps_progress(lines: Sequence[Message], fix: str) -> ReadinessFinding:
    back = [(one["step"], other["step"]) for one, other in pairwise(lines) if other["step"] <= one["step"]]
    restarted = next((one["step"] for one in lines if one.get("restarted")), None)
    if back:
        return ReadinessFinding("keeps its progress", f"steps were done again: {back[0][0]} -> {back[0][1]}", fix)
    if restarted is not None:
        detail = f"its own step count went back, at step {restarted}"
        return ReadinessFinding("keeps its progress", detail, fix)
    return ReadinessFinding("keeps its progress", f"steps 1 to {lines[-1]['step']}, none done again")


def _loss_falls(lines: Sequence[Message]) -> ReadinessFinding:
    bad = next((one["step"] for one in lines if one.get("nan")), None)
    if bad is not None:
        fix = "try a smaller learning rate, and look at the data of that step"
        return ReadinessFinding("continues to learn", f"the loss is not a number at step {bad}", fix)
    losses = [float(one["loss"]) for one in lines if one["loss"] is not None]
    third = len(losses) // 3
    if not third:
        return ReadinessFinding("continues to learn", "not enough losses to tell", LOSS)
    first, last = mean(losses[:third]), mean(losses[-third:])
    if last > first + abs(first) * _FALLING:
        fix = "see that model and optimizer are in the state, and that train() does not make new ones"
        return ReadinessFinding("continues to learn", f"the loss rises: {first:.4g} -> {last:.4g}", fix)
    return ReadinessFinding("continues to learn", f"loss {first:.4g} -> {last:.4g}")
