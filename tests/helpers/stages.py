"""Agents that have imported torch, once for all tests of a process, and the launchers that use them in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bftrain import registry
from tests.helpers.launcher_conformance import TRIAL, LocalStage

NODES = ("n1", "n2", "n3", "n4")
SITE_MESSAGES = {"registered", "gone", "refused", "warm"}  # about agents, which outlive a launcher


@contextmanager
def launched(stage: LocalStage, launcher: str, script: Sequence[str] = TRIAL) -> Iterator[LocalStage]:
    """Give a stage another launcher and script; afterwards all its nodes are there, and nothing of a task is left."""
    before = stage.launcher, stage.script
    stage.messages.all = [one for one in stage.messages.all if one["type"] in SITE_MESSAGES]
    stage.launcher, stage.script = registry.load("launcher", launcher)(stage.messages, stage.hub), script
    try:
        yield stage
    finally:
        stage.restore()
        stage.launcher.close()
        stage.launcher, stage.script = before
