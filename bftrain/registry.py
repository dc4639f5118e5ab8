"""Finds parts by name: the built-in table merged with entry points of installed packages.

Everything is loaded lazily, so asking for one part imports only that part. A plug-in that cannot be loaded is
reported where parts are listed, and is an error only for those who ask for it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from bftrain.errors import BrokenPlugin, UnknownName, fold
from bftrain.exception_text import described
from bftrain.ports import Placement, SharingPolicy, Solver

if TYPE_CHECKING:
    from collections.abc import Mapping

Port = Literal[
    "solver",
    "objective",
    "admission",
    "placement",
    "launcher",
    "reader",
    "queue_policy",
    "scheduler",
    "sharing",
    "rounds",
    "metric",
]
PORTS: Final[tuple[Port, ...]] = get_args(Port)

BUILT_IN: Final[Mapping[Port, Mapping[str, str]]] = {
    "solver": {
        "exact": "bftrain_solvers.exact:solver",
        "highs": "bftrain_solvers.highs:solver",
        "cbc": "bftrain_solvers.cbc:solver",
        "gurobi": "bftrain_solvers.gurobi:solver",
        "equal-share": "bftrain_solvers.equal_share:solver",
        "equal-share-published": "bftrain_solvers.equal_share:published",
        "greedy": "bftrain_solvers.greedy:solver",
        "fifo": "bftrain_solvers.allocators:fifo",
        "las": "bftrain_solvers.allocators:las",
        "srtf": "bftrain_solvers.allocators:srtf",
        "isolated": "bftrain_solvers.allocators:isolated",
        "proportional-share": "bftrain_solvers.allocators:proportional_share",
        "marginal-gain": "bftrain_solvers.allocators:marginal_gain",
    },
    "objective": {
        "throughput": "bftrain.deciding.objectives:throughput",
        "speedup": "bftrain.deciding.objectives:speedup",
        "weighted": "bftrain.deciding.objectives:weighted",
        "deadline": "bftrain.deciding.objectives:deadline",
        "max-min": "bftrain.deciding.fair_objectives:max_min",
        "max-min-plain": "bftrain.deciding.fair_objectives:max_min_plain",
        "max-min-now": "bftrain.deciding.fairness:max_min_now",
        "water-filling": "bftrain.deciding.fair_objectives:water_filling",
        "hierarchical": "bftrain.deciding.fair_objectives:hierarchical",
        "finish-time": "bftrain.deciding.fair_objectives:finish_time",
        "makespan": "bftrain.deciding.fair_objectives:makespan",
        "completion": "bftrain.deciding.normalised_objectives:completion",
        "proportional": "bftrain.deciding.normalised_objectives:proportional",
        "cost": "bftrain.deciding.normalised_objectives:cost",
    },
    # What makes one, given how many tasks may compete
    "admission": {
        "first-come": "bftrain.deciding.admission:first_come",
        "all": "bftrain.deciding.admission:admit_all",
        "load": "bftrain.deciding.admission:by_load",
        "quota": "bftrain.deciding.admission:quota",
        "campaigns": "bftrain.deciding.campaigns:campaigns",
    },
    "placement": {
        "grouped": "bftrain.deciding.placement:grouped",
        "neighbours": "bftrain.deciding.neighbours:neighbours",
    },
    # Its factory: takes the receiver of its messages and the hub of all agents
    "launcher": {
        "native": "bftrain_elastic.manager.launchers:native",
        "horovod": "bftrain_elastic.manager.launchers:horovod",
        "process": "bftrain_elastic.manager.launchers:process",
        "torchrun": "bftrain_elastic.manager.launchers:torchrun",
        "fake": "bftrain_elastic.manager.launchers:fake",
    },
    # In the order in which they are asked whether they recognise a file
    "reader": {
        "sacct": "bftrain_datasets.readers.sacct",
        "swf": "bftrain_datasets.readers.swf",
        "lsf": "bftrain_datasets.readers.lsf",
        "sge": "bftrain_datasets.readers.sge",
        "oar": "bftrain_datasets.readers.oar",
        "ndstat": "bftrain_datasets.readers.ndstat",
        "csv": "bftrain_datasets.readers.own_csv",
        "counts": "bftrain_datasets.readers.counts",
        "jobcomp": "bftrain_datasets.readers.jobcomp",
        "sinfo": "bftrain_datasets.readers.sinfo",
        "slurmctld": "bftrain_datasets.readers.slurmctld",
        "pbs": "bftrain_datasets.readers.pbs",
    },
    # What makes one, given PolicyOptions
    "queue_policy": {
        "fcfs": "bftrain_datasets.scheduling.fcfs:make",
        "easy": "bftrain_datasets.scheduling.easy:make",
        "conservative": "bftrain_datasets.scheduling.conservative:make",
        "fairshare": "bftrain_datasets.scheduling.fairshare:make",
        "ostrich": "bftrain_datasets.scheduling.ostrich:make",
    },
    # What makes one, given the settings of a site for it
    "scheduler": {
        "local": "bftrain.live.schedulers.local:make",
        "slurm": "bftrain.live.schedulers.slurm:make",
        "slurm-nodes": "bftrain.live.schedulers.slurm_nodes:make",
        "pbs": "bftrain.live.schedulers.pbs:make",
        "pbs-nodes": "bftrain.live.schedulers.pbs_nodes:make",
    },
    "sharing": {
        "max-min": "bftrain_solvers.sharing.policies:max_min",
        "max-min-blind": "bftrain_solvers.sharing.policies:max_min_blind",
        "water-filling": "bftrain_solvers.sharing.policies:water_filling",
        "hierarchical": "bftrain_solvers.sharing.policies:hierarchical",
        "finish-time": "bftrain_solvers.sharing.policies:finish_time",
        "makespan": "bftrain_solvers.sharing.policies:makespan",
        "throughput": "bftrain_solvers.sharing.policies:throughput",
        "cost": "bftrain_solvers.sharing.policies:cost",
        "proportional": "bftrain_solvers.sharing.policies:proportional",
        "isolated": "bftrain_solvers.sharing.policies:isolated",
    },
    "metric": {"campaigns": "bftrain_replay.results.campaign_stretch:metric"},
    # What makes one
    "rounds": {
        "fifo": "bftrain_replay.rounds.ordered_policies:fifo",
        "las": "bftrain_replay.rounds.ordered_policies:las",
        "srtf": "bftrain_replay.rounds.ordered_policies:srtf",
    },
}

# Names from before, and what they mean now
RENAMED: Final[Mapping[Port, Mapping[str, str]]] = {"objective": {"max_min": "max-min-now"}}

# Only what a part must have as it stands: an admission, a queue policy or a scheduler is made from settings, a reader
# recognises files, and an objective may also be a plain function, of which bftrain.parts.objectives makes one
_CONTRACTS: Final[Mapping[Port, type]] = {"solver": Solver, "placement": Placement, "sharing": SharingPolicy}


class RegisteredPart(msgspec.Struct, frozen=True, kw_only=True):
    """One registered part: its ``target`` is ``module:attribute``, ``origin`` says who brings it."""

    port: Port
    name: str
    target: str
    origin: str
    problem: str = ""

    def load(self) -> Any:  # noqa: ANN401 - the caller checks the port's Protocol
        """Import the part."""
        module, _, attribute = self.target.partition(":")
        try:
            found: object = import_module(module)
            if attribute:  # without one the module itself is the part
                found = attrgetter(attribute)(found)
        except (Exception, SystemExit) as error:  # a module that ends the process when imported is broken, no more
            raise BrokenPlugin(
                f"cannot be loaded from {self.target}: {described(error)}",
                where=f"{self.port} '{self.name}'",
                fix=f"repair or uninstall {self.origin}",
            ) from error
        contract = _CONTRACTS.get(self.port)
        if contract is not None and (isinstance(found, type) or not isinstance(found, contract)):
            raise BrokenPlugin(
                f"{self.target} is a class, and an object of it is asked for"
                if isinstance(found, type)
                else f"{self.target} has not all that bftrain.ports.{contract.__name__} asks for",
                where=f"{self.port} '{self.name}'",
                fix=f"repair or uninstall {self.origin}",
            )
        return found


def parts(port: Port) -> dict[str, RegisteredPart]:
    """All registered parts of a port by name.

    A plug-in cannot take a name that is taken, nor one that differs from it only in ``-``, ``_`` and case.
    """
    found = {name: _built_in(port, name) for name in BUILT_IN[port]}
    taken_names = {fold(name): part for name, part in found.items()}
    for entry in entry_points(group=f"bftrain.{port}"):
        origin = entry.dist.name if entry.dist else "an unknown package"
        taken = taken_names.get(fold(entry.name))
        if taken is None:
            part = RegisteredPart(port=port, name=entry.name, target=entry.value, origin=origin)
            found[entry.name] = taken_names[fold(entry.name)] = part
        else:
            found[f"{entry.name} ({origin})"] = RegisteredPart(
                port=port,
                name=entry.name,
                target=entry.value,
                origin=origin,
                problem=f"the name is taken by {_called(taken, entry.name)}; rename the entry point",
            )
    return found


def load(port: Port, name: str) -> Any:  # noqa: ANN401 - see Part.load
    """Load the part called ``name``, or say which names there are."""
    name = current_name(port, name)
    if name in BUILT_IN[port]:  # no need to look through all installed packages
        return _built_in(port, name).load()
    known = parts(port)
    if name not in known or known[name].problem:
        raise UnknownName.among(port, name, (key for key, part in known.items() if not part.problem))
    return known[name].load()


def current_name(port: Port, name: str) -> str:
    """Return what a part is called now: ``name``, unless it was renamed."""
    return RENAMED.get(port, {}).get(name, name)


def note_on_name(port: Port, name: str) -> str:
    """Return what to say of a name from before, or nothing."""
    current = current_name(port, name)
    if current == name:
        return ""
    alike = [other for other in BUILT_IN[port] if fold(other) == fold(name)]
    more = f"; '{alike[0]}' is another {port}" if alike else ""
    return f"the {port} '{name}' is called '{current}' now{more}"


def _called(part: RegisteredPart, wanted: str) -> str:
    return part.origin if part.name == wanted else f"{part.origin} as '{part.name}'"


def _built_in(port: Port, name: str) -> RegisteredPart:
    return RegisteredPart(port=port, name=name, target=BUILT_IN[port][name], origin="bftrain")
