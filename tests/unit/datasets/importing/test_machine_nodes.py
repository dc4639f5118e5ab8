"""Names of nodes."""

from __future__ import annotations

from bftrain_datasets.importing.machine_nodes import same_nodes


def test_spellings_of_a_node_are_one() -> None:
    names = ["n7.c.local", "N7", "n7", "n8.c.local", "n9.a", "n9.b", "n9", "10.0.0.1", "X"]
    assert same_nodes(names) == {"n7": "N7", "n7.c.local": "N7"}
