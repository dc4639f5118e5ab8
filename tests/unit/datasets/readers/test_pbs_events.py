"""Downtime of nodes as PBS logs and shows it, beside its accounting."""

from __future__ import annotations

import json
import time
from itertools import permutations
from pathlib import Path

import pytest

from bftrain import BadInput
from tests.helpers.records import finding, idle_second_by_second, imported
from tests.helpers.samples import DAY, pbs_nodes
from tests.helpers.scheduler_lines import pbs_end, pbs_logged

JOBS = pbs_end("1.s", DAY, DAY + 10, "n1/0+n2/0") + pbs_end("2.s", DAY + 90, DAY + 100, "n1/0+n2/0")
STAYS = [(node, DAY + begin, DAY + begin + 10) for node in ("n1", "n2") for begin in (0, 90)]


def shown(**nodes: tuple[str, int]) -> str:
    """Show nodes as ``pbsnodes -av`` does."""
    return "".join(
        f"{node}\n     Mom = {node}\n     ntype = PBS\n     state = {state}\n     resources_available.arch = linux\n"
        f"     comment = see state = odd\n     last_state_change_time = {time.asctime(time.gmtime(DAY + since))}\n\n"
        for node, (state, since) in nodes.items()
    )


def idle_s(folder: Path, *texts: str) -> float:
    """Import these texts beside the jobs, in any order of the files, and give the idle node-seconds."""
    found = {imported(folder, *files, timezone="UTC").log.idle_node_s for files in permutations((JOBS, *texts))}
    assert len(found) == 1
    return found.pop()


def test_what_the_server_logs_of_nodes(tmp_path: Path) -> None:
    log = (
        pbs_logged(DAY + 1, "setup_env", "read environment", kind="n/a")
        + pbs_logged(DAY + 5, "n1.site", "node down: communication closed")
        + pbs_logged(DAY + 20, "n1", "attributes set: state + offline")
        + pbs_logged(DAY + 30, "n1.site", "node up")
        + pbs_logged(DAY + 40, "n1", "attributes set: at request of root@s")
        + pbs_logged(DAY + 50, "n1", "attributes set: state - offline")
        + pbs_logged(DAY + 60, "n2", "attributes set: state = offline")
        + pbs_logged(DAY + 70, "n2", "attributes set: state = free")
    )
    out = [("n1", DAY + 5, DAY + 50), ("n2", DAY + 60, DAY + 70)]
    found = imported(tmp_path, JOBS, log, timezone="UTC")
    assert found.format == "pbs"
    assert found.rows.aside == {"other_record": 2}
    assert idle_s(tmp_path, log) == idle_second_by_second(found.log, STAYS + out) == 160 - 40 - 10


def test_days_of_a_log_are_one_story(tmp_path: Path) -> None:
    first = pbs_logged(DAY + 20, "n1", "attributes set: state + offline_by_mom")
    later = pbs_logged(DAY + 40, "n1", "attributes set: state - offline")
    assert idle_s(tmp_path, first, later) == 160 - 20


def test_states_by_their_bits(tmp_path: Path) -> None:
    log = "".join(
        pbs_logged(DAY + at, node, f"set_vnode_state;vnode.state=0x{state:x} vnode_o.state=0x0 more")
        for at, node, state in ((20, "n1[0]", 0x2), (25, "n1[1]", 0x20001), (30, "n1[0]", 0), (45, "n1[1]", 0x10))
    )
    assert idle_s(tmp_path, log) == 160 - (45 - 20)


def test_what_pbsnodes_shows(tmp_path: Path) -> None:
    both = {"n1": ("down,offline", 20), "n2": ("job-exclusive", 0)}
    later = {"n1": ("free", 60), "n2": ("state-unknown,down", 80)}
    expected = 160 - 40 - 10
    assert idle_s(tmp_path, shown(**both), shown(**later)) == expected
    assert idle_s(tmp_path, pbs_nodes(**both), pbs_nodes(**later)) == expected
    assert idle_s(tmp_path, pbs_nodes(**both) + pbs_nodes(**later)) == expected


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    log = (
        pbs_logged(DAY, "a b", "node up")
        + "11/25/2026 25:00:00;0002;Server@s;Node;n1;node up\n"
        + pbs_logged(DAY, "s", "Log opened", kind="Svr")
        + "odd\n"
    )
    nodes = json.loads(pbs_nodes(n1=("", 5), n2=("down", 5)))
    nodes["nodes"]["n2"]["last_state_change_time"] = "soon"
    found = imported(tmp_path, JOBS, log, json.dumps(nodes))
    assert found.rows.aside == {
        "bad_nodes": 1, "bad_time": 2, "other_record": 1, "malformed": 1, "bad_state": 1,
    }  # fmt: skip
    assert finding(found, "bad_time").count == 2
    with pytest.raises(BadInput, match="incomplete JSON"):
        imported(tmp_path, JOBS, pbs_nodes(n1=("down", 5))[:-3])
