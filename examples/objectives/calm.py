"""Samples per second, limited to one size change per decision."""

import numpy as np

from bftrain.values.coupling import linear_sum


class Calm:
    """An objective that couples tasks."""

    name = "calm"

    def values(self, task, sizes):
        """Return the value per second of one task at each size: a row of the value table."""
        return task.curve.speeds(sizes[-1])

    def couple(self, model):
        """Add variables and rows, and set the objective."""
        tasks = model.problem.tasks
        sizes = np.arange(model.width)
        changes = linear_sum(model.over_sizes(place, sizes != task.size) for place, task in enumerate(tasks))
        model.at_most(changes, 1)
        model.maximise(linear_sum(model.value(place) for place in range(len(tasks))))

    def total(self, chosen, sizes, problem):
        """Return the objective's value for given sizes; ``chosen`` are their table entries."""
        return float(chosen.sum())
