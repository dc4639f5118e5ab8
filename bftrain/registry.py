"""Finds parts by name: the built-in table merged with entry points of installed packages.

Everything is loaded lazily, so asking for one part imports only that part. A plug-in that cannot be loaded is
reported where parts are listed, and is an error only for those who ask for it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from bftrain.errors import BrokenPlugin, UnknownName
from bftrain.ports import Placement, Solver

if TYPE_CHECKING:
    from collections.abc import Mapping

Port = Literal["solver", "objective", "admission", "placement", "launcher", "reader"]
PORTS: Final[tuple[Port, ...]] = ("solver", "objective", "admission", "placement", "launcher", "reader")

BUILT_IN: Final[Mapping[Port, Mapping[str, str]]] = {
    "solver": {
        "exact": "bftrain_solvers.exact:solver",
        "highs": "bftrain_solvers.highs:solver",
        "cbc": "bftrain_solvers.cbc:solver",
        "gurobi": "bftrain_solvers.gurobi:solver",
        "equal-share": "bftrain_solvers.equal_share:solver",
        "equal-share-published": "bftrain_solvers.equal_share:published",
        "greedy": "bftrain_solvers.greedy:solver",
    },
    "objective": {
        "throughput": "bftrain.deciding.objectives:throughput",
        "speedup": "bftrain.deciding.objectives:speedup",
        "weighted": "bftrain.deciding.objectives:weighted",
        "deadline": "bftrain.deciding.objectives:deadline",
        "max_min": "bftrain.deciding.fairness:max_min",
    },
    "admission": {"first-come": "bftrain.deciding.admission:first_come"},
    "placement": {"grouped": "bftrain.deciding.placement:grouped"},
    # What makes one, given whom to tell and the hub of all agents
    "launcher": {
        "native": "bftrain_elastic.launchers:native",
        "horovod": "bftrain_elastic.launchers:horovod",
        "process": "bftrain_elastic.launchers:process",
        "torchrun": "bftrain_elastic.launchers:torchrun",
        "fake": "bftrain_elastic.launchers:fake",
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
}

# Only what a part must have as it stands: an admission is built from settings, a reader recognises files, and an
# objective may also be a plain function, of which bftrain.objective_file makes one
_CONTRACTS: Final[Mapping[Port, type]] = {"solver": Solver, "placement": Placement}


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One registered part: its ``target`` is ``module:attribute``, ``origin`` says who brings it."""

    port: Port
    name: str
    target: str
    origin: str
    problem: str = ""

    def load(self) -> Any:  # noqa: ANN401 - the port's Protocol is checked by whoever asked for it
        """Import the part."""
        module, _, attribute = self.target.partition(":")
        try:
            found: object = import_module(module)
            if attribute:  # without one the module itself is the part
                found = attrgetter(attribute)(found)
        except (Exception, SystemExit) as error:  # a module that ends the process when imported is broken, no more
            raise BrokenPlugin(
                f"cannot be loaded from {self.target}: {type(error).__name__}: {error}",
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


def parts(port: Port) -> dict[str, Part]:
    """All registered parts of a port by name. A built-in name cannot be taken over by a plug-in."""
    found = {name: _built_in(port, name) for name in BUILT_IN[port]}
    for entry in entry_points(group=f"bftrain.{port}"):
        origin = entry.dist.name if entry.dist else "an unknown package"
        taken = found.get(entry.name)
        if taken is None:
            found[entry.name] = Part(port=port, name=entry.name, target=entry.value, origin=origin)
        else:
            found[f"{entry.name} ({origin})"] = Part(
                port=port,
                name=entry.name,
                target=entry.value,
                origin=origin,
                problem=f"the name is taken by {taken.origin}; rename the entry point",
            )
    return found


def load(port: Port, name: str) -> Any:  # noqa: ANN401 - see Part.load
    """Load the part called ``name``, or say which names there are."""
    if name in BUILT_IN[port]:  # no need to look through all installed packages
        return _built_in(port, name).load()
    known = parts(port)
    if name not in known or known[name].problem:
        raise UnknownName.among(port, name, (key for key, part in known.items() if not part.problem))
    return known[name].load()


def _built_in(port: Port, name: str) -> Part:
    return Part(port=port, name=name, target=BUILT_IN[port][name], origin="bftrain")
