"""Executors: run the passes of a sweep. Each runs all, in any order, and loses none."""
