"""Check many jobs at once, as columns, by the same rules in the same order as ``RecordIntake.job``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrain.nodesets import MOST_NODES
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.job_checks import MAY_HAVE_RUN, RecordIntake, size_of
from bftrain_datasets.importing.job_columns import key_of
from bftrain_datasets.importing.known_texts import NUMBER, REPEATED, SIZE, UNKNOWN, facts_of
from bftrain_datasets.importing.machine_nodes import HeldNodes
from bftrain_datasets.log.idle_doubts import PROCS_AS_NODES, ROWS_ASIDE

BAD_TIME = -np.inf  # an unreadable time
_OF_NODES = ("no_usage", "bad_nodes", "bad_value")
_FIRST = ("bad_time", "missing_time", "no_usage", "missing_time", "bad_value", "no_usage")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBatch:
    """One row per job. Times are seconds UTC: NaN for missing ones, ``BAD_TIME`` for unreadable ones.

    ``end`` is infinite while a job runs. ``sets`` are indices in ``set_texts``, node sets as written, or -1; one list
    that grows may serve many batches. Without names ``count`` is the number of nodes, or of GPUs or cores if these are
    counted. With names, ``units`` describe these for each of ``set_texts`` (``unit_sets.shares_of``). ``reason`` is
    the index in ``reasons`` for which the reader sets a row aside, or -1. ``lines`` are line numbers. ``most`` is the
    largest number of nodes that a job may have held, if its processors are known but not its nodes.
    """

    lines: NDArray[np.int64]
    job: Sequence[str]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    sets: NDArray[np.int32]
    set_texts: Sequence[str]
    count: NDArray[np.int64]
    queue: Sequence[str] | None
    preempted: NDArray[np.bool_]
    reason: NDArray[np.int8]
    node_failed: NDArray[np.bool_] | None = None
    reasons: tuple[str, ...] = ()
    units: Sequence[str] = ()
    most: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return self.start.size


def take_jobs(intake: RecordIntake, batch: JobBatch, expand: Callable[[str], Sequence[str]] = expand_set) -> None:
    """Check the jobs and use their rows or set them aside."""
    judge = _Judge(intake, batch)
    for place, reason in enumerate(batch.reasons):
        judge.set_aside(reason, batch.reason == place)
    start, end = batch.start, batch.end
    with np.errstate(invalid="ignore"):
        held_s = end - start
    bad = np.isinf(start) | (end == BAD_TIME)
    unnamed = batch.sets < 0
    no_start = np.isnan(start) & np.isfinite(end) & ~unnamed
    masks = (bad, no_start, np.isnan(start), np.isnan(end), held_s < 0, held_s == 0)
    for reason, mask in zip(_FIRST, masks, strict=True):
        judge.set_aside(reason, mask, size=_sizes_of(batch, mask, expand) if reason in MAY_HAVE_RUN else None)
    holding = _Holding.of(intake, batch, judge.left, expand)
    kind = holding.kind
    held, unknown = holding.facts[SIZE][kind], holding.facts[UNKNOWN][kind]
    size = np.where(held > 0, held, np.minimum(batch.count, MOST_NODES))
    known_s = np.where(np.isinf(held_s), 0.0, held_s)
    weight = known_s * size
    for place, reason in enumerate(_OF_NODES):
        wrong = holding.rejected[kind] == place
        judge.set_aside(reason, wrong, None if reason == "bad_value" else weight, np.maximum(size, unknown))
    if batch.queue and intake.options.preemptible:
        preemptible = np.fromiter(map(intake.is_preemptible, batch.queue), dtype=np.bool_, count=len(batch))
        judge.set_aside("preemptible", preemptible, weight)
    empty = (held == 0) | (unnamed & (not intake.options.counts))
    judge.set_aside("other_nodes", empty & (unknown > 0), weight)
    judge.set_aside("no_nodes", empty, weight, size)
    begin_s, until_s = intake.options.window
    outside = np.zeros(len(batch), dtype=np.bool_)
    if begin_s is not None:
        outside |= end <= begin_s
    if until_s is not None:
        outside |= start >= until_s
    for row in np.flatnonzero(outside & judge.left & ~np.isinf(end)).tolist():
        intake.stays.add_outside(batch.job[row], float(start[row]))
    judge.set_aside("not_selected", outside, weight)
    _add_used_jobs(intake, batch, np.flatnonzero(judge.left), holding, known_s)


def _sizes_of(batch: JobBatch, mask: NDArray[np.bool_], expand: Callable[[str], Sequence[str]]) -> NDArray[np.int64]:
    """Return the node counts of the rows in the mask, as far as recorded: only needed for rejected rows."""
    size = np.clip(batch.count, 0, MOST_NODES)
    known: dict[int, int] = {}
    for row in np.flatnonzero(mask & (batch.count <= 0) & (batch.sets >= 0)).tolist():
        place = int(batch.sets[row])
        if place not in known:
            known[place] = size_of(batch.set_texts[place], expand)
        size[row] = known[place]
    return size


class _Judge:
    """Sets rows aside; the first reason that applies counts."""

    def __init__(self, intake: RecordIntake, batch: JobBatch) -> None:
        self.left = np.ones(len(batch), dtype=np.bool_)
        self._intake = intake
        self._batch = batch

    def set_aside(
        self,
        reason: str,
        mask: NDArray[np.bool_],
        node_s: NDArray[np.float64] | None = None,
        size: NDArray[np.int64] | None = None,
    ) -> None:
        """Set the rows in ``mask`` aside; ``size`` is the number of nodes that these may have held."""
        rows = np.flatnonzero(mask & self.left)
        if not rows.size:
            return
        self._intake.line = int(self._batch.lines[rows[0]])
        self._intake.set_many_aside(reason, rows.size, 0.0 if node_s is None else float(node_s[rows].sum()))
        self.left[rows] = False
        if size is not None and reason in MAY_HAVE_RUN:
            begin, end = self._batch.start[rows], self._batch.end[rows]
            begin = np.where(np.isfinite(begin), begin, -np.inf)
            end = np.where(np.isnan(end) | (end == BAD_TIME), np.inf, end)
            for stay in zip(begin.tolist(), end.tolist(), np.maximum(size[rows], 1).tolist(), strict=True):
                self._intake.doubtful_stays.add(ROWS_ASIDE, *stay)


@dataclass(frozen=True, slots=True)
class _Holding:
    """The nodes held by rows: ``kind`` is a row's index in the others.

    ``texts`` are indices in ``set_texts`` or -1; ``facts`` are those of ``KnownTexts``; ``rejected`` are indices in
    ``_OF_NODES``, the reasons to reject a row, or -1.
    """

    kind: NDArray[np.int64]
    texts: NDArray[np.int32]
    sets: NDArray[np.object_]
    facts: NDArray[np.int64]
    rejected: NDArray[np.int8]

    @classmethod
    def of(
        cls, intake: RecordIntake, batch: JobBatch, left: NDArray[np.bool_], expand: Callable[[str], Sequence[str]]
    ) -> _Holding:
        """Look up each combination of node set and count once, in the order of the rows."""
        known = intake.known_texts
        known.use(batch.set_texts)
        count = np.clip(batch.count, -1, MOST_NODES + 1)
        key = np.where(left, batch.sets.astype(np.int64) * (MOST_NODES + 3) + count, np.iinfo(np.int64).min)
        _, first, kind, rows = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        texts, said, used = batch.sets[first], count[first], left[first]
        sets, facts, rejected = known.sets[texts], known.facts[:, texts], np.full(first.size, -1, dtype=np.int8)
        total = facts[SIZE] + facts[UNKNOWN]
        missing = used & ((total == 0) | ((said != 0) & (total != said)))
        for place in np.flatnonzero(missing)[np.argsort(first[missing])].tolist():
            text, of = int(texts[place]), int(said[place])
            nodes = batch.set_texts[text] if text >= 0 else ""
            units = batch.units[text] if nodes and batch.units else str(max(of, 0))
            held, reason = intake.held_by(nodes, of, expand, int(rows[place]), units)
            sets[place], facts[:, place] = held, facts_of(held)
            rejected[place] = _OF_NODES.index(reason) if reason else -1
            if intake.known_sets.get(nodes) is held and not nodes[0].isdigit():  # digits may denote a range
                known.keep(text, held)
        return cls(kind, texts, sets, facts, rejected)


def _add_used_jobs(
    intake: RecordIntake, batch: JobBatch, rows: NDArray[np.int64], holding: _Holding, known_s: NDArray[np.float64]
) -> None:
    if not rows.size:
        return
    kind, size, facts = holding.kind[rows], holding.facts[SIZE][holding.kind], holding.facts
    used = np.unique(kind)
    for place in used[facts[NUMBER][used] < 0].tolist():
        held = holding.sets[place]
        facts[NUMBER, place] = intake.number_of(held)
        intake.known_texts.refresh(int(holding.texts[place]), held)
    for place in used[(facts[UNKNOWN][used] > 0) | (facts[REPEATED][used] > 0)].tolist():
        _note_node_set(intake, batch, holding.sets[place], rows[kind == place], known_s)
    preempted = rows[batch.preempted[rows]]
    if preempted.size:
        intake.line = int(batch.lines[preempted[0]])
        intake.note("preemption", count=preempted.size, node_s=float((size * known_s)[preempted].sum()))
    if batch.most is not None:
        further = batch.most[rows] - size[rows]
        stays = (batch.start[rows], batch.end[rows], further)
        for stay in zip(*(column[further > 0].tolist() for column in stays), strict=True):
            intake.doubtful_stays.add(PROCS_AS_NODES, *stay)
    intake.use_many(rows.size)
    end, start = batch.end[rows], batch.start[rows]
    intake.observed(float(np.where(np.isinf(end), start, end).max()))
    places_in_batch = rows.tolist()
    jobs = map(batch.job.__getitem__, places_in_batch)
    keys = np.fromiter(map(key_of, jobs), dtype=np.int64, count=rows.size)
    queues = np.full(rows.size, -1, dtype=np.int32)
    if batch.queue:
        names = map(batch.queue.__getitem__, places_in_batch)
        queues = np.fromiter(map(intake.stays.queue_number, names), dtype=np.int32, count=rows.size)
    intake.line = 0
    places = intake.place() | batch.lines[rows]
    if batch.node_failed is not None:
        intake.failed_places.extend(places[batch.node_failed[rows]].tolist())
    intake.line = int(batch.lines[rows[-1]])
    intake.stays.add_many(
        start=start,
        end=end,
        sets=facts[NUMBER][kind].astype(np.int32),
        count=size[rows].astype(np.int32),
        job=keys,
        place=places,
        queue=queues,
    )


def _note_node_set(
    intake: RecordIntake, batch: JobBatch, held: HeldNodes, rows: NDArray[np.int64], known_s: NDArray[np.float64]
) -> None:
    intake.line = int(batch.lines[rows[0]])
    if held.unknown:
        node_s = held.unknown * float(known_s[rows].sum())
        intake.note("unknown_nodes", count=held.unknown * rows.size, node_s=node_s)
    if held.repeated:
        intake.note("notation", count=held.repeated * rows.size)
