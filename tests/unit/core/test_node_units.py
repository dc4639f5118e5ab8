"""Units of idle time and their words."""

from __future__ import annotations

import pytest

from bftrain.node_units import expand_slots, in_words_of, node_of, slot_name


@pytest.mark.parametrize(
    ("text", "of_gpus"),
    [
        ("12 idle node-hours on 3 nodes.", "12 idle GPU-hours on 3 GPUs."),
        ("Nodes that a node, or no node-time: node-seconds", "GPUs that a GPU, or no GPU-time: GPU-seconds"),
        ("compute-node-3, node_h, node/gpu1, anode, nodes.csv, n.node", ...),
        ("a node's last job (nodes)", "a GPU's last job (GPUs)"),
    ],
)
def test_sentences_about_nodes_are_said_of_units_and_names_stay(text: str, of_gpus: str) -> None:
    assert in_words_of("gpu", text) == (text if of_gpus is ... else of_gpus)
    assert in_words_of("node", text) == text


def test_cores_begin_with_a_capital_where_nodes_do() -> None:
    assert in_words_of("core", "Nodes, node-hours") == "Cores, core-hours"


def test_slots_and_their_nodes() -> None:
    assert node_of(slot_name("rack1/n2", "core", 17)) == "rack1/n2"
    assert expand_slots("n[1-2]/gpu[0-1],n9,m3/core7") == [
        "n1/gpu0", "n1/gpu1", "n2/gpu0", "n2/gpu1", "n9", "m3/core7",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no node"):
        expand_slots("n1/")
