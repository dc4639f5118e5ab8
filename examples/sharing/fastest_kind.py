"""A sharing policy in one method."""

from collections import Counter

from bftrain.values.sharing import Shares, SharingProblem


class FastestKind:
    """Each task has an equal part of the nodes of the kind on which it is fastest."""

    name = "fastest-kind"

    def share(self, problem: SharingProblem) -> Shares:
        """Return each task's share of time on its fastest kind."""
        best = {task.name: max(task.speeds, key=task.speeds.__getitem__) for task in problem.tasks}
        tasks = Counter(best.values())
        shares, speeds = {}, {}
        for task in problem.tasks:
            kind = best[task.name]
            part = min(1.0, problem.nodes[kind] / tasks[kind] / task.nodes)
            shares[task.name], speeds[task.name] = {kind: part}, task.speeds[kind] * part
        return Shares(policy=self.name, value=sum(speeds.values()), value_is="samples/s", shares=shares, speeds=speeds)
