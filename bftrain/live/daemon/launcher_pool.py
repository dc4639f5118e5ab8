"""LauncherPool: passes orders to the launcher of each task; departures that can wait are graceful."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final

from bftrain import registry
from bftrain.errors import BadInput, BftrainError, BrokenPlugin
from bftrain.launcher_orders import orders
from bftrain.live.model.schemas import LiveTaskRecord
from bftrain.live.model.site_config import SiteSettings, environment_of
from bftrain.ports import Launcher
from bftrain.values.actions import Action, Cause, Plan, Release
from bftrain_elastic.errors import ElasticError
from bftrain_elastic.manager.agent_hub import AgentHub

Tell = Callable[[dict[str, Any]], None]
_DEFAULT_STALL_LIMIT_S: Final = 1800.0  # default for jobs without a setting


class LauncherPool:
    """The launchers in use, each made for its first task. ``hub`` may be ``None`` where agents are not used."""

    def __init__(self, tell: Tell, hub: AgentHub | None, site: SiteSettings) -> None:
        self._tell = tell
        self._hub = hub
        self._site = site
        self._launchers: dict[str, Launcher] = {}
        self._of: dict[str, Launcher] = {}  # task -> its launcher
        # node to vacate gracefully -> the task on it, and since when (monotonic)
        self._lingering: dict[str, tuple[str, float]] = {}

    def add(self, record: LiveTaskRecord) -> None:
        """Register a task with its launcher. May take a moment, as a folder is made. From any thread."""
        where = f"task '{record.name}'"
        launcher = self.launcher(record.launcher)
        try:
            launcher.add(record.name, _job(record, self._site))
        except ElasticError as error:
            raise BadInput(error.what, where=error.where or where, fix=error.fix) from error
        except OSError as error:
            raise BadInput(f"its folder cannot be made: {error}", where=where) from error
        self._of[record.name] = launcher

    def drop(self, task: str) -> None:
        """Forget a finished task."""
        launcher = self._of.pop(task, None)
        if launcher is not None:
            launcher.drop(task)

    def narrow(self, task: str, size: int | None) -> None:
        """Let a task run on only the first ``size`` of its nodes, if its launcher supports that."""
        self._call(task, "narrow", size)

    def set_batch(self, task: str, batch: int) -> None:
        """Set the samples of a task's step, if its launcher supports that."""
        self._call(task, "set_batch", batch)

    def _call(self, task: str, method: str, value: object) -> None:
        if (optional := getattr(self._of.get(task), method, None)) is not None:
            optional(task, value)

    def carry_out(self, actions: Iterable[Action], *, vacating: Collection[str] = ()) -> None:
        """Carry out actions without blocking. Nodes in ``vacating`` are vacated as in a planned change."""
        hurried: list[Action] = []
        for action in actions:
            if vacating and isinstance(action, Release):
                nodes = tuple(node for node in action.nodes if node not in vacating)
                hurried += [Release(nodes=nodes)] if nodes else []
            else:
                hurried.append(action)
        message, now = orders(hurried), time.monotonic()
        for order in message if vacating else ():
            if slow := set(order["nodes"]).intersection(vacating):
                order["cause"] = str(Cause.DECIDED)  # a planned change gets more time
                self._lingering.update(dict.fromkeys(slow, (order["task"], now)))
        for launcher in tuple(self._launchers.values()):
            mine = [order for order in message if self._of.get(order.get("task", ""), launcher) is launcher]
            if mine:
                launcher.apply(mine)

    def establish(self, plan: Plan) -> None:
        """Report the plan to launchers after a restart: tasks continue on their nodes and stop on all other nodes."""
        tasks = [task for task in self._of if task not in plan.holdings]
        tasks += [task for task in plan.holdings if task in self._of]
        held = {task: list(plan.holdings.get(task, ())) for task in tasks}
        for launcher in tuple(self._launchers.values()):
            mine = {task: nodes for task, nodes in held.items() if self._of[task] is launcher}
            launcher.apply(
                [{"action": "start" if nodes else "stop", "task": task, "nodes": nodes} for task, nodes in mine.items()]
            )

    def keep(self, nodes: Iterable[str]) -> None:
        """Cancel the vacating of nodes that are ours again."""
        for node in nodes:
            self._lingering.pop(node, None)

    def clear(self, nodes: Collection[str]) -> None:
        """Clear nodes immediately that were being vacated gracefully."""
        hurried = [node for node in nodes if self._lingering.pop(node, None) is not None]
        if hurried:
            for launcher in tuple(self._launchers.values()):
                launcher.apply([{"action": "release", "nodes": hurried}])

    def vacated(self, task: str, nodes: Iterable[str]) -> tuple[str, ...]:
        """Record that a task has left nodes; return the nodes that were being vacated."""
        gone = tuple(node for node in nodes if self._lingering.get(node, ("", 0.0))[0] == task)
        for node in gone:
            del self._lingering[node]
        return gone

    def overdue(self, patience_s: float) -> frozenset[str]:
        """Return nodes whose grace to vacate exceeded ``patience_s``, or whose task exited silently."""
        latest = time.monotonic() - patience_s
        return frozenset(
            node for node, (task, since) in self._lingering.items() if since <= latest or task not in self._of
        )

    @property
    def lingering(self) -> frozenset[str]:
        """The nodes that tasks are still vacating."""
        return frozenset(self._lingering)

    def close(self) -> None:
        """Stop all processes. May take a while: must not be called in the event loop."""
        for launcher in tuple(self._launchers.values()):
            with suppress(Exception):  # the remaining ones must be closed anyway
                launcher.close()

    def launcher(self, name: str) -> Launcher:
        """Return the launcher of this name, made on first use."""
        found = self._launchers.get(name)
        if found is None:
            where = f"launcher '{name}'"
            make = registry.load("launcher", name)
            try:
                found = make(self._tell, self._hub)
            except (BftrainError, ElasticError):
                raise
            except Exception as error:
                raise BrokenPlugin(f"cannot be made: {type(error).__name__}: {error}", where=where) from error
            self._launchers[name] = found
        return found


def _job(record: LiveTaskRecord, site: SiteSettings) -> dict[str, Any]:
    """Return the job as a launcher takes it, without empty entries, which older launchers may not know."""
    run, environment = record.run, environment_of(record.run, dict(site.environments), site.environment)
    limit_s = site.times.stall_s if run.stall_limit_s is None else run.stall_limit_s
    optional = {
        "finish_code": run.finish_code,
        "finish_file": run.finish_file or None,
        "work_samples": record.spec.work_samples,
        "stall_limit_s": None if limit_s == _DEFAULT_STALL_LIMIT_S else limit_s,
        "setup": environment.setup or None,
        "prefix": environment.prefix or None,
        "python": environment.python or None,
    }
    job: dict[str, Any] = {"argv": run.argv, "folder": run.folder, "cwd": run.cwd, "env": run.env}
    job |= {"stop_grace_s": run.stop_grace_s, "workers_per_node": run.workers_per_node}
    job["identity"] = f"{record.number} {record.submitted_s!r}"  # a new journal counts from 1 again
    return job | {name: value for name, value in optional.items() if value is not None}
