"""Executors: where the passes of a sweep are done. Each does them all, in any order, and loses none."""
