"""Processes and ports as agents see them, for tests: the only place where end-to-end tests import these."""

from __future__ import annotations

from bftrain_elastic.agent.process_tree import children, descendants, kill, state_of
from bftrain_elastic.tryout.local_agents import LocalAgents, alive, listening

__all__ = ["LocalAgents", "alive", "children", "descendants", "kill", "listening", "state_of"]
