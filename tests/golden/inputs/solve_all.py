"""Solve each example problem with each solver and objective, or sharing policy, and print the answers."""

import json
from pathlib import Path

import bftrain

OBJECTIVES = """throughput speedup weighted goodput deadline max-min max-min-plain max-min-now water-filling hierarchical finish-time
makespan completion proportional cost""".split()
SOLVERS = "exact highs cbc equal-share greedy fifo las srtf isolated proportional-share marginal-gain".split()

for path in sorted(Path("examples/problems").glob("*.json")):
    problem = json.loads(path.read_text())
    if "policy" in problem:
        continue
    for objective in OBJECTIVES:
        for solver in SOLVERS:
            solution = bftrain.solve(problem, solver, objective=objective)
            value = f"{solution.value:.9g}" if solution.value is not None else "no value"
            sizes = dict(solution.sizes or {})
            exact = solver == "exact"  # other solvers may break ties differently
            print(
                path.stem,
                objective,
                solver,
                solution.termination.value,
                value,
                sizes if exact or solver not in {"highs", "cbc"} else "",
            )
