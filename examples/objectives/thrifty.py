"""Samples per second, minus the price of the nodes."""

from functools import partial


def thrifty(task, sizes, price=0.8):
    """Price a node at a share of the speed of the task's first node."""
    return task.curve.speeds(sizes[-1]) - price * task.curve.speed(1) * sizes


at_50, at_70, at_90 = (partial(thrifty, price=price) for price in (0.5, 0.7, 0.9))
