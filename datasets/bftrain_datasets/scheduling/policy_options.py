"""What policies are made from. The port itself, ``QueuePolicy``, is in ``bftrain.ports``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Options of a policy: how deep it looks, how fast it forgets, and each user's share."""

    backfill_depth: int = 50
    half_life_s: float = 0.0
    shares: Sequence[float] = ()
