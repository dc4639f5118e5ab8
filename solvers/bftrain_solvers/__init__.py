"""Solvers: exact, MILP backends and rules, each behind the same protocol."""
