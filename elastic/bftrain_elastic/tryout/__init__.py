"""Tryouts: agents and launchers on this machine, for scripts, demos and tests."""
