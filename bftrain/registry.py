"""Finds parts by name: the built-in table merged with entry points of installed packages.

Parts are loaded lazily, each at its first use. A plug-in that cannot be loaded is
shown in lists of parts, and is an error only where it is requested.
"""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from bftrain.errors import BadInput, BrokenPlugin, UnknownName, described, fold
from bftrain.ports import SharingPolicy, Solver

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoints

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
        "highs-or-stay": "bftrain_solvers.highs:or_stay",
        "cbc": "bftrain_solvers.cbc:solver",
        "gurobi": "bftrain_solvers.gurobi:solver",
        "equal-share": "bftrain_solvers.allocators:equal_share",
        "equal-share-published": "bftrain_solvers.allocators:equal_share_published",
        "greedy": "bftrain_solvers.allocators:greedy",
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
        "goodput": "bftrain.deciding.goodput:goodput",
        "deadline": "bftrain.deciding.objectives:deadline",
        "max-min": "bftrain.deciding.fair_objectives:max_min",
        "max-min-plain": "bftrain.deciding.fair_objectives:max_min_plain",
        "max-min-now": "bftrain.deciding.fair_objectives:max_min_now",
        "water-filling": "bftrain.deciding.fair_objectives:water_filling",
        "hierarchical": "bftrain.deciding.fair_objectives:hierarchical",
        "finish-time": "bftrain.deciding.fair_objectives:finish_time",
        "makespan": "bftrain.deciding.fair_objectives:makespan",
        "completion": "bftrain.deciding.objectives:completion",
        "proportional": "bftrain.deciding.objectives:proportional",
        "cost": "bftrain.deciding.objectives:cost",
    },
    # A factory with the argument max_tasks
    "admission": {
        "first-come": "bftrain.deciding.admission:FirstComeAdmission",
        "all": "bftrain.deciding.admission:AdmitAll",
        "load": "bftrain.deciding.admission:LoadAdmission",
        "quota": "bftrain.deciding.admission:QuotaAdmission",
    },
    "placement": {
        "grouped": "bftrain.deciding.placement:grouped",
        "neighbours": "bftrain.deciding.placement:neighbours",
        "consolidated": "bftrain.deciding.placement:consolidated",
        "scattered": "bftrain.deciding.placement:scattered",
    },
    # A factory with two arguments: the receiver of its messages, and the hub of all agents
    "launcher": {name: f"bftrain_elastic.manager.launchers:{name}" for name in ("native", "horovod", "process")},
    # Readers try to recognise a file in this sequence
    "reader": {
        "sacct": "bftrain_datasets.readers.sacct",
        "swf": "bftrain_datasets.readers.swf",
        "lsf": "bftrain_datasets.readers.lsf",
        "htcondor": "bftrain_datasets.readers.htcondor",
        "kubernetes": "bftrain_datasets.readers.kubernetes",
        "sge": "bftrain_datasets.readers.sge",
        "oar": "bftrain_datasets.readers.oar",
        "ndstat": "bftrain_datasets.readers.ndstat",
        "counts": "bftrain_datasets.readers.counts",
        "sinfo": "bftrain_datasets.readers.sinfo",
        "slurm-events": "bftrain_datasets.readers.slurm_events",
        "pbs": "bftrain_datasets.readers.pbs",
        "pbs-events": "bftrain_datasets.readers.pbs_events",
        "flux": "bftrain_datasets.readers.flux",
        "jobs": "bftrain_datasets.readers.jobs",
    },
    # A factory with the argument PolicyOptions
    "queue_policy": {
        "fcfs": "bftrain_datasets.scheduling.queue_policies:FirstComePolicy",
        "easy": "bftrain_datasets.scheduling.queue_policies:EasyBackfill",
        "fairshare": "bftrain_datasets.scheduling.queue_policies:FairSharePolicy",
        "ostrich": "bftrain_datasets.scheduling.queue_policies:OStrichPolicy",
        "ostrich-fifo": "bftrain_datasets.scheduling.queue_policies:FifoOStrichPolicy",
    },
    # A factory with the site's settings as argument
    "scheduler": {
        "local": "bftrain.live.schedulers.local:make",
        "cluster": "bftrain.live.schedulers.cluster:make",
        "slurm": "bftrain.live.schedulers.slurm:make",
        "slurm-nodes": "bftrain.live.schedulers.slurm:make_nodes",
        "pbs": "bftrain.live.schedulers.pbs:make",
        "pbs-nodes": "bftrain.live.schedulers.pbs:make_nodes",
        "flux": "bftrain.live.schedulers.flux:make",
    },
    "sharing": {
        "max-min": "bftrain_solvers.sharing.policies:max_min",
        "max-min-blind": "bftrain_solvers.sharing.policies:max_min_blind",
        "water-filling": "bftrain_solvers.sharing.policies:water_filling",
        "water-filling-blind": "bftrain_solvers.sharing.policies:water_filling_blind",
        "hierarchical": "bftrain_solvers.sharing.policies:hierarchical",
        "finish-time": "bftrain_solvers.sharing.policies:finish_time",
        "finish-time-blind": "bftrain_solvers.sharing.policies:finish_time_blind",
        "makespan": "bftrain_solvers.sharing.policies:makespan",
        "makespan-blind": "bftrain_solvers.sharing.policies:makespan_blind",
        "throughput": "bftrain_solvers.sharing.policies:throughput",
        "cost": "bftrain_solvers.sharing.policies:cost",
        "proportional": "bftrain_solvers.sharing.policies:proportional",
        "isolated": "bftrain_solvers.sharing.policies:isolated",
        "allox": "bftrain_solvers.sharing.published:allox",
        "strategy-proof": "bftrain_solvers.sharing.published:strategy_proof",
        "deadlines": "bftrain_solvers.sharing.published:deadlines",
        "cost-deadlines": "bftrain_solvers.sharing.published:cost_deadlines",
        **{
            f"{name}-packed": f"bftrain_solvers.sharing.packed:{name.replace('-', '_')}"
            for name in (
                *("max-min", "water-filling", "finish-time", "makespan"),
                *("fifo", "throughput", "cost", "cost-deadlines"),
            )
        },
    },
    "metric": {},
    # A factory; its parameters, if any, may be set in the policy's name
    "rounds": {
        **{name: f"bftrain_replay.rounds.round_policy:{name}" for name in ("fifo", "las", "srtf")},
        "tiresias": "bftrain_replay.rounds.published_policies:Tiresias",
        "optimus": "bftrain_replay.rounds.published_policies:Optimus",
        "pollux": "bftrain_replay.rounds.published_policies:Pollux",
        "goodput": "bftrain_replay.rounds.published_policies:Goodput",
        "optimus-by-one": "bftrain_replay.rounds.published_policies:OptimusByOne",
        "gandiva": "bftrain_replay.rounds.published_policies:Gandiva",
        "synergy": "bftrain_replay.rounds.round_resources:Synergy",
    },
}

_ROUND_SOLVER: Final = "bftrain_replay.rounds.round_solver:make"  # a factory with the argument Settings

# Former names, and the current ones
RENAMED: Final[Mapping[Port, Mapping[str, str]]] = {"objective": {"max_min": "max-min-now"}}

# Former parts, and their replacements
_REMOVED: Final[Mapping[tuple[Port, str], str]] = {
    ("admission", "campaigns"): "copy examples/admissions/campaigns.py, and write campaigns.py:CampaignAdmission",
    ("metric", "campaigns"): "copy examples/metrics/campaigns.py, and write campaigns.py:metric",
}

# Protocols of parts used as registered: an admission, a queue policy or a scheduler is created from settings, a reader
# recognises files, and an objective may also be a plain function, which bftrain.parts wraps
_CONTRACTS: Final[Mapping[Port, type]] = {"solver": Solver, "sharing": SharingPolicy}
_WITHOUT_PLUGINS: Final = {"placement"}


class RegisteredPart(msgspec.Struct, frozen=True, kw_only=True):
    """One registered part: its ``target`` is ``module:attribute``, ``origin`` the package that provides it."""

    port: Port
    name: str
    target: str
    origin: str
    problem: str = ""

    def load(self) -> Any:  # noqa: ANN401 - the caller checks the port's Protocol
        """Import the part."""
        module, _, attribute = self.target.partition(":")
        where, fix = f"{self.port} '{self.name}'", f"repair or uninstall {self.origin}"
        try:
            found: object = import_module(module)
            if attribute:  # otherwise the part is the module itself
                found = attrgetter(attribute)(found)
        except (Exception, SystemExit) as error:  # a module that exits on import is just broken
            what = f"cannot be loaded from {self.target}: {described(error)}"
            raise BrokenPlugin(what, where=where, fix=fix) from error
        contract = _CONTRACTS.get(self.port)
        if contract is not None and isinstance(found, type):
            raise BrokenPlugin(f"{self.target} is a class, but an instance is required", where=where, fix=fix)
        if contract is not None and not isinstance(found, contract):
            what = f"{self.target} does not implement bftrain.ports.{contract.__name__}"
            raise BrokenPlugin(what, where=where, fix=fix)
        return found


def entry_points(group: str) -> EntryPoints:
    """Return the entry points of installed packages in a group."""
    from importlib import metadata  # noqa: PLC0415 - it imports email, and built-in parts need neither

    return metadata.entry_points(group=group)


def parts(port: Port) -> dict[str, RegisteredPart]:
    """Return all registered parts of a port by name.

    A plug-in must not reuse another part's name; ``-``, ``_`` and case are ignored in the comparison.
    """
    found = {name: _built_in(port, name) for name in BUILT_IN[port]}
    taken_names = {fold(name): part for name, part in found.items()}
    for entry in entry_points(group=f"bftrain.{port}") if port not in _WITHOUT_PLUGINS else ():
        origin = entry.dist.name if entry.dist else "an unknown package"
        part = RegisteredPart(port=port, name=entry.name, target=entry.value, origin=origin)
        taken = taken_names.setdefault(fold(entry.name), part)
        if taken is part:
            found[entry.name] = part
        else:
            holder = taken.origin if taken.name == entry.name else f"{taken.origin} as '{taken.name}'"
            problem = f"the name is already used by {holder}; rename the entry point"
            found[f"{entry.name} ({origin})"] = msgspec.structs.replace(part, problem=problem)
    return found


def load(port: Port, name: str) -> Any:  # noqa: ANN401 - see RegisteredPart.load
    """Load the part called ``name``; the error for an unknown name lists the known ones."""
    name = current_name(port, name)
    if name in BUILT_IN[port]:  # skips the search through all installed packages
        return _built_in(port, name).load()
    known = parts(port)
    if (port, name) in _REMOVED and name not in known:
        raise BadInput(f"'{name}' is no longer built in", where=port, fix=_REMOVED[port, name])
    if name not in known or known[name].problem:
        raise UnknownName.among(port, name, (key for key, part in known.items() if not part.problem))
    return known[name].load()


def round_solver() -> Any:  # noqa: ANN401 - a factory of solvers
    """Load the factory of the solver that asks a policy of rounds; its argument is the settings."""
    return RegisteredPart(port="rounds", name="solver", target=_ROUND_SOLVER, origin="bftrain").load()


def current_name(port: Port, name: str) -> str:
    """Return the current name of a part; differs from ``name`` only if the part was renamed."""
    return RENAMED.get(port, {}).get(name, name)


def note_on_name(port: Port, name: str) -> str:
    """Return a warning for a former name, or an empty text."""
    current = current_name(port, name)
    if current == name:
        return ""
    alike = [other for other in BUILT_IN[port] if fold(other) == fold(name)]
    more = f"; '{alike[0]}' is another {port}" if alike else ""
    return f"the {port} '{name}' is called '{current}' now{more}"


def _built_in(port: Port, name: str) -> RegisteredPart:
    return RegisteredPart(port=port, name=name, target=BUILT_IN[port][name], origin="bftrain")
