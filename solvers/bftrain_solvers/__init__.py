"""bftrain_solvers."""
