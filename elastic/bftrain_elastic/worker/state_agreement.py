"""What the members of a group do together at a commit: they agree on their values, and tell where copies are."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bftrain_elastic.worker import replica_drift
from bftrain_elastic.worker.large_values import taken
from bftrain_elastic.worker.state_saving import TELLING_S
from bftrain_elastic.worker.state_tree import NamedValues
from bftrain_elastic.worker.state_values import (
    LINEAGE,
    OWN,
    SAMPLES,
    STEP,
    StateInternals,
    compared_values,
    has_state_dict,
    inner,
    keep,
)

if TYPE_CHECKING:
    from bftrain_elastic.worker.state_values import StateBase


def commit_together(state: StateBase) -> int:
    """Copy the state on all members, with the values of rank 0; return the largest generation that one is asked for."""
    own = inner(state)
    compared = compared_values(state)
    digest, tells = compared.digest(), wants_to_tell(own)
    numbers = [own.asked(), digest, -digest, tells, *look_at_large_values(state, compared)]
    largest, highest, lowest, tells, *large = own.group.largest_each(numbers)
    if large_values_due(large, leaves=largest > own.group.place.generation):
        _take_large_values_of_first(state, everything=largest > own.group.place.generation)
        compared = compared_values(state)
    if highest != -lowest:
        take_values_of_first(state, compared)
        compared = compared_values(state)
    keep(state, compared)
    if tells:
        own.group.largest(0)  # all have their copy
        if own.group.place.rank == 0:
            tell_in_memory(own)
    if replica_drift.is_due(own.commits):
        _tell_drift(state)
    return largest


def look_at_large_values(state: StateBase, compared: NamedValues) -> list[int]:
    """Look which large values were changed; return numbers of which all members need the largest of each."""
    own = inner(state)
    held = vars(state)
    own.large.look({name: held[name] for name in _large_names(state, compared)})
    digest = own.large.digest
    return [digest, -digest, int(own.large.there and own.group.place.rank == 0)]


def _large_names(state: StateBase, compared: NamedValues) -> list[str]:
    there = {OWN, *compared.names}
    return [name for name, value in vars(state).items() if name not in there and not has_state_dict(value)]


def large_values_due(numbers: Sequence[int], *, leaves: bool) -> bool:
    """Return whether rank 0 has to send its large values: others have not changed the same, or the group dissolves."""
    highest, lowest, there = numbers
    return bool(there) and (leaves or highest != -lowest)


def _take_large_values_of_first(state: StateBase, *, everything: bool) -> None:
    """Give all members the large values of rank 0; of all members."""
    own = inner(state)
    first = own.group.place.rank == 0
    tree = own.group.shared(own.large.to_send(everything=everything) if first else None)
    if first:
        return
    for name, value in taken(tree, vars(state)).items():
        setattr(state, name, value)
    look_at_large_values(state, compared_values(state))


def take_values_of_first(state: StateBase, compared: NamedValues) -> None:
    """Give all members the values of rank 0; of all members."""
    own = inner(state)
    tree = own.group.shared(compared.tree() if own.group.place.rank == 0 else None)
    if own.group.place.rank == 0:
        return
    before = dict(json.loads(text) for text in compared.texts)
    after = dict(json.loads(tree.plain)[1])
    values = tree.unfolded()
    own.step = own.commit_step = int(values.pop(STEP))
    own.lineage = int(values.pop(LINEAGE))
    own.samples, own.samples_since = values.pop(SAMPLES)
    for name, value in values.items():
        if after[name] != before.get(name) or tree.tensors:  # what is the same already may be in use
            setattr(state, name, value)


def _tell_drift(state: StateBase) -> None:
    """Tell if the replicas of the models are not the same on all members; of all members."""
    own = inner(state)
    models = [value for name, value in vars(state).items() if name != OWN and hasattr(value, "parameters")]
    relative = replica_drift.relative(own.group.spread(replica_drift.summary(models)))
    if relative > replica_drift.TOLERATED and own.group.place.rank == 0:
        own.tell({"type": "drift", "step": own.step, "relative": relative})


def wants_to_tell(own: StateInternals) -> int:
    """Return 1 on rank 0 if it will tell that this commit is in memory; otherwise 0."""
    place = own.group.place
    return int(place.rank == 0 and place.size > 1 and time.monotonic() - own.reported_at > TELLING_S)


def tell_in_memory(own: StateInternals) -> None:
    """Tell how far the training is safe against the loss of some nodes: all members hold a copy of the last commit."""
    own.reported_at = time.monotonic()
    own.tell({"type": "in_memory", "step": own.commit_step})
