"""The idle time of GPUs or cores by a plain loop over all moments, as a reference for imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

Stay = tuple[float, float, "Mapping[str, int | set[int]]"]  # begin, end, and how many of each node, or which


def idle_slot_s(stays: Sequence[Stay], capacity: Mapping[str, int], begin_s: float, end_s: float) -> float:
    """Add up what no job holds of each node, moment by moment; no more is held than the node has."""
    edges = {begin_s, end_s, *(at for stay in stays for at in stay[:2] if begin_s < at < end_s)}
    idle_s = 0.0
    for low_s, high_s in pairwise(sorted(edges)):
        for node, there in capacity.items():
            held = [stay[2][node] for stay in stays if node in stay[2] and stay[0] <= low_s and stay[1] >= high_s]
            numbers = {number for each in held if isinstance(each, set) for number in each if number < there}
            counted = sum(each for each in held if not isinstance(each, set))
            idle_s += (there - min(there, counted + len(numbers))) * (high_s - low_s)
    return idle_s
