"""Elastic training: agents and workers on the compute nodes, and the manager that directs them.

It needs only the standard library; scripts bring PyTorch. A training script keeps its persistent values in a state,
marks safe points, and reports each step::

    from bftrain_elastic import State, report, run

    def train(state):
        model = state.parallel()
        while state.position < STEPS:
            loss = one_step(model, state)
            state.position += 1
            report(samples=BATCH, loss=loss)
            state.commit()

    run(State(model=model, optimizer=optimizer, position=0), train)

Run it on a laptop to train as usual; under bftrain it is resized while it runs. If you only want measurements, call
``report`` alone. A script without ``run`` calls ``finish`` once all work is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bftrain_elastic.worker.data import ElasticLoader, ElasticStream
    from bftrain_elastic.worker.progress_report import finish, on_report, report
    from bftrain_elastic.worker.sharded_training import ShardedTraining
    from bftrain_elastic.worker.state import State
    from bftrain_elastic.worker.training import run

__all__ = ["ElasticLoader", "ElasticStream", "ShardedTraining", "State", "finish", "on_report", "report", "run"]

_HOMES = {
    "ElasticLoader": "worker.data",
    "ElasticStream": "worker.data",
    "ShardedTraining": "worker.sharded_training",
    "State": "worker.state",
    "finish": "worker.progress_report",
    "on_report": "worker.progress_report",
    "report": "worker.progress_report",
    "run": "worker.training",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """Import public names on first use: an agent needs no public names, and must start immediately."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bftrain_elastic' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module(f"bftrain_elastic.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
