"""Solve each example problem with each solver and objective, and print the answers."""

import json
from pathlib import Path

import bftrain

OBJECTIVES = (
    "throughput speedup weighted goodput deadline max-min max-min-plain max-min-now water-filling hierarchical "
    "finish-time makespan completion proportional cost"
)
SOLVERS = "exact highs cbc equal-share greedy fifo las srtf isolated proportional-share marginal-gain"
TIES_VARY = {"highs", "cbc"}  # between equal plans

for path in sorted(Path("examples/problems").glob("*.json")):
    problem = json.loads(path.read_text())
    if "policy" in problem:
        continue
    for objective in OBJECTIVES.split():
        for solver in SOLVERS.split():
            solution = bftrain.solve(problem, solver, objective=objective)
            value = f"{solution.value:.9g}" if solution.value is not None else "no value"
            sizes = "" if solver in TIES_VARY else dict(solution.sizes or {})
            print(path.stem, objective, solver, solution.termination.value, value, sizes)
