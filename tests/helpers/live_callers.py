"""Callers of a live run: submissions, addresses and tokens."""

from __future__ import annotations

from typing import Any, Final

from bftrain import Run, Submission
from bftrain.live.model.schemas import Caller
from tests.helpers.live_inside import Inside

ANN: Final = Caller(uid=70001, user="ann", operator=False)
BOB: Final = Caller(uid=70002, user="bob", operator=False)
CHIEF: Final = Caller(uid=70003, user="chief", operator=True)


def submission(name: str = "", largest: int = 4, **more: Any) -> Submission:  # noqa: ANN401 - any field
    run = more.pop("run", None) or Run(argv=("/home/ann/train.py",))
    return Submission(run=run, name=name, max_nodes=largest, **more)


def everywhere(inside: Inside) -> tuple[str, str]:
    """Return the addresses at which a live run is reached: its socket, and over TCP."""
    unix, tcp = inside.api.addresses
    return unix, tcp


def token_of(inside: Inside) -> str:
    return f"Bearer {inside.daemon.site.token.read_text().strip()}"
