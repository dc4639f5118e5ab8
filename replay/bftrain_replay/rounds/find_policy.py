"""Policies by name: registered ones, sharing policies carried out by priorities, and your own out of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bftrain import registry
from bftrain.errors import BadInput, UnknownName
from bftrain.exception_text import described
from bftrain.parts import python_file
from bftrain.ports import SharingPolicy
from bftrain_replay.rounds.round_policy import RoundPolicy
from bftrain_replay.rounds.share_priorities import ByShares

if TYPE_CHECKING:
    from bftrain_replay.rounds.round_settings import RoundSettings


def find_policy(settings: RoundSettings) -> RoundPolicy:
    """Make the policy that the settings name.

    That is a registered one of rounds or of sharing, or ``path/to/file.py:name``: a policy, or what makes one.
    """
    name = settings.policy
    where = f"policy '{name}'"
    file, attribute = python_file.parts(name)
    found = _registered(name) if file is None else python_file.load(file, attribute, where)
    if isinstance(found, type) or not isinstance(found, RoundPolicy | SharingPolicy):
        found = _made(found, where)
    if isinstance(found, SharingPolicy):
        return ByShares(found, settings.shares_interval_s, settings.entities, settings.prices)
    return found


def _registered(name: str) -> object:
    """Load a part of either port. Installed packages are looked through only for what is not built in."""
    ports: tuple[registry.Port, ...] = ("rounds", "sharing")
    for port in ports:
        if name in registry.BUILT_IN[port]:
            return registry.load(port, name)
    known = {name: part for port in reversed(ports) for name, part in registry.parts(port).items() if not part.problem}
    if name not in known:
        raise UnknownName.among("policy of rounds", name, known)
    return known[name].load()


def _made(make: object, where: str) -> RoundPolicy | SharingPolicy:
    try:
        made = make() if callable(make) else make
    except Exception as error:
        raise BadInput(f"cannot be made: {described(error)}", where=where) from error
    if not isinstance(made, RoundPolicy | SharingPolicy):
        fix = "define a class with name and priorities(contenders), which docs/rounds.md describes"
        raise BadInput(f"what makes it gives a {type(made).__name__}, and no policy", where=where, fix=fix)
    return made
