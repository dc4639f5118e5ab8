"""Racks of a cluster, as operators have them: Slurm's files, lists, and names of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput
from bftrain.topology import load_topology, place_of, rack_of

CONF = """# racks
SwitchName=s1 Nodes=n[1-2] LinkSpeed=1
switchname=s2 \\
  nodes=n3
SwitchName=top Switches=s[1-2]
"""
SHOWN = """SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n3
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=s[1-2]
"""
LINES = "s1: n1\ns1: n2\n\ns2 = n3\n"
TABLE = "node,name,rack\nn1,x,s1\nn2,y,s1\nn3,z,s2\n"


@pytest.mark.parametrize(
    ("name", "text"), [("topology.conf", CONF), ("shown", SHOWN), ("racks.txt", LINES), ("racks.csv", TABLE)]
)
def test_the_racks_of_a_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    rack = rack_of(load_topology(str(tmp_path / name)))
    assert [rack(node) for node in ("n1", "n2", "n3", "n4")] == ["s1", "s1", "s2", ""]


def test_blocks_of_slurm_are_racks(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\nBlockSizes=2\n")
    assert load_topology(str(tmp_path / "topology.conf")) == {"b1": "n[1-2]", "b2": "n3"}


@pytest.mark.parametrize(
    ("numbers", "node", "rack"),
    [(1, "r1n7", "r1n"), (3, "x1000c0s0b0", "x1000c"), (1, "rack-2-17", "rack-2"), (2, "n7", ""), (1, "login", "")],
)
def test_names_say_the_rack(numbers: int, node: str, rack: str) -> None:
    assert rack_of(load_topology(f"names:{numbers}"))(node) == rack


def test_a_gpu_lies_on_its_host_and_a_node_in_its_rack() -> None:
    racks = {"r1": "n[1-2]"}
    assert [place_of(racks)(name) for name in ("n1", "n1/gpu0", "n3")] == ["r1", "n1", ""]
    assert rack_of(racks)("n1/gpu0") == "r1"
    assert place_of({})("n1") == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("names:x", r"--topology: 'names:x' must be names: and a number from 1 to 4 .such as names:1"),
        ("names:9", "must be names: and a number from 1 to 4"),
        ("# nothing\n", r"names no racks .give Slurm's topology.conf"),
        ("SwitchName=top Switches=s[1-2]\n", "names no racks"),
        ("r1: n[1-2]\nr2: n2\n", r"node 'n2' is in the racks 'r1' and 'r2' .assign each node to one"),
        ("r1: n[1-\n", r"rack 'r1'.*write a node set such as"),
    ],
)
def test_what_is_no_topology_is_refused(tmp_path: Path, given: str, message: str) -> None:
    path = tmp_path / "racks.txt"
    path.write_text(given)
    with pytest.raises(BadInput, match=message):
        load_topology(given if given.startswith("names") else str(path))


def test_a_table_without_racks_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("node,where\nn1,r1\n")
    with pytest.raises(BadInput, match="lacks the columns node and rack"):
        load_topology(str(tmp_path / "a.csv"))
    with pytest.raises(BadInput, match=r"nowhere: there is no such file"):
        load_topology(str(tmp_path / "nowhere"))
