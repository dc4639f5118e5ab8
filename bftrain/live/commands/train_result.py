"""Words and tables that ``bftrain train`` prints at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bftrain.cli.output import table

if TYPE_CHECKING:
    from rich.console import RenderableType


def result_words(result: Mapping[str, Any]) -> RenderableType:
    """Return speeds, costs of changes and the size of the state, as the terminal shows them."""
    from rich.console import Group

    loss = result["loss"]
    fallen = f", loss {loss['first']:.4g} -> {loss['last']:.4g}" if loss else ""
    title = f"{result['ended']} after {result['steps']:,} steps{fallen}"
    speeds = [(size, f"{rate:,.0f}", f"{1e3 * result['step_s'][size]:.1f}") for size, rate in result["speed"].items()]
    costs = [
        (change, len(found), f"{sorted(found)[len(found) // 2]:.3f}", f"{max(found):.3f}")
        for change, found in result["cost_s"].items()
    ]
    parts: list[RenderableType] = [table(title, ("nodes", "samples/s", "step, ms"), speeds)] if speeds else [title, ""]
    if costs:
        parts.append(table("Costs of changing the size", ("change", "times", "median, s", "worst, s"), costs))
    if result["state"]:
        parts.append(_state_words(**result["state"]))
    return Group(*parts)


def _state_words(bytes: int, grow_s: float | None) -> str:  # noqa: A002 - a key
    """Return the size of the state, and what growth costs."""
    cost = "" if grow_s is None else f" Growing cost {grow_s:.3f} s (median)."
    return f"The state has {bytes / 1e6:,.1f} MB.{cost}"
