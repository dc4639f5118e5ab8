"""Samples per second, with at most one task that changes its size at a decision."""

import numpy as np

from bftrain.values.coupling import linear_sum


class Calm:
    """An objective that ties tasks together."""

    name = "calm"

    def values(self, task, sizes):
        """What a task alone is worth per second: what the value table is made of."""
        return task.curve.speeds(sizes[-1])

    def couple(self, model):
        """Add variables and rows, and say what is best."""
        tasks = model.problem.tasks
        sizes = np.arange(model.width)
        changes = linear_sum(model.over_sizes(place, sizes != task.size) for place, task in enumerate(tasks))
        model.at_most(changes, 1)
        model.maximise(linear_sum(model.value(place) for place in range(len(tasks))))

    def total(self, chosen, sizes, problem):
        """What maximise() comes to for given sizes, whose table entries are ``chosen``."""
        return float(chosen.sum())
