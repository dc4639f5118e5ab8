"""Studies: one log and one set of tasks replayed, with references and bounds."""
