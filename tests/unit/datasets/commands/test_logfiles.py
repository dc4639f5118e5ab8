"""What the commands about logs have in common: the nodes that an option names."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput
from bftrain_datasets.commands.logfiles import node_list


def test_nodes_of_an_option_are_named_once_each() -> None:
    assert node_list("b2,a[1-2],b2") == ("b2", "a1", "a2")
    with pytest.raises(BadInput, match=r"--nodes: not a node set: .*write it as the scheduler does"):
        node_list("a[")


def test_nodes_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("# the first rack\nr1[1-2]  r17 # and a spare one\n\nr2,r17\n")
    assert node_list(str(file), file) == ("r11", "r12", "r17", "r2")
    file.write_text("r1\nr2[\n")
    with pytest.raises(BadInput, match=r"nodes:2: not a node set"):
        node_list(str(file), file)
    file.write_text("# none\n")
    with pytest.raises(BadInput, match="has no node"):
        node_list(str(file), file)
