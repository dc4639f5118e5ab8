"""Logs of real sites through ``bftrain import``, ``check`` and ``inspect``: what is known of them comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.in_process import CommandLine
from tests.helpers.site_data import site_data

WHOLE = {
    # file: (options, format, nodes, busy node-seconds or None, idle per cent or None)
    "sacct/ub-micro-slurm_acct.out": ((), "sacct", 10, 405_162, None),
    "sacct/ub-micro-sinfo.out": ((), "sinfo", 10, None, 21.4),
    "sacct/eagle-sample-1000.csv": ((), "jobs", 1995, None, None),
    "pernode/oar-g5k-graphene-seed8.details.json.gz": ((), "oar", 32, None, None),
    "pernode/oar-g5k-graphene-seed8.gantt.json.gz": ((), "oar", 32, None, None),
    "pernode/wagap-2013.swf.gz": ((), "swf", 44, None, 18),
    "pernode/xdmod-phillips.sacct.log.gz": ((), "sacct", 46, None, None),
    "swf/KTH-SP2-1996-2.swf.gz": (("--counts",), "swf", 100, None, None),
    "swf/NASA-iPSC-1993-3.1-cln.swf.gz": (("--counts",), "swf", 128, None, None),
    "swf/theta_2022.swf.gz": (("--counts",), "swf", 4360, None, None),
    "gpu/philly_node_sequence.csv.gz": ((), "counts", 552, None, None),
    "fixtures/lsf_accounting-logs.log": ((), "lsf", 12, None, 0),
    "fixtures/lsf_utf8-multibyte-chars.log": ((), "lsf", 8, None, 0),
    "fixtures/pbs_accounting-logs.log": (("--cluster", "*"), "pbs", 11, None, None),
    "fixtures/pbs_ncar-casper-2025.log": ((), "pbs", 4, None, None),
    "fixtures/sge_accounting-logs.log": ((), "sge", 1, 60, 0),
    "fixtures/uge_accounting-logs.log": ((), "sge", 2, None, None),
    "fixtures/slurm_accounting-logs-with-job-arrays.log": ((), "sacct", 32, 32 * 3 * 86400, 0),
    "fixtures/slurm_accounting-logs.log": ((), "sacct", 39, None, None),
    "fixtures/slurm_utf8-multibyte-chars.log": ((), "sacct", 1, 3 * 86400, 0),
    "scheduler-samples/pbs_accounting_sample.txt": ((), "pbs", 1, None, None),
    "scheduler-samples/sacct_sample.txt": ((), "sacct", 8, None, None),
    "summit/ndstat-10sdn6-evt.tar.gz": ((), "ndstat", 4734, None, 8.27),
}
REFUSED = {
    # file: a part of what is said of it
    "scheduler-samples/slurmctld_log_sample.txt": "a log of slurmctld",
    "sacct/ub-micro-jobcomp.log": "use the output of: sacct",
    "fixtures/pbs_accounting-logs.log": "--cluster",
    "swf/theta_2022.swf.gz": "--counts",
    "fixtures/slurm_unknown-job-state.log": "no row describes an allocated node",
    "pernode/wagap-2013.swf.machines": "but no header",
}


def imported(bftrain: CommandLine, name: str, into: Path, *options: str) -> dict[str, Any]:
    ended = bftrain("import", site_data(name), "-o", into, "--json", *options)
    assert ended.code == 0, ended.err
    figures: dict[str, Any] = json.loads(ended.out)
    return figures


@pytest.mark.parametrize("name", WHOLE)
def test_a_real_log_is_recognised_imported_and_inspected(bftrain: CommandLine, name: str, tmp_path: Path) -> None:
    options, form, nodes, busy_node_s, idle_percent = WHOLE[name]
    log = tmp_path / "log.npz"
    figures = imported(bftrain, name, log, *options)
    assert (figures["format"], figures["nodes"]) == (form, nodes)
    rows = figures["rows"]
    assert rows["read"] == rows["used"] + sum(rows["aside"].values()) > 0
    if busy_node_s is not None:
        whole_s = nodes * (figures["end_s"] - figures["start_s"])
        assert whole_s - 3600 * figures["idle_node_hours"] == pytest.approx(busy_node_s, abs=1e-6)
    if idle_percent is not None:
        assert 100 * figures["idle_share"] == pytest.approx(idle_percent, abs=0.5)
    output = json.loads(bftrain("inspect", log, "--json").out)
    assert (output["nodes"], output["events"], output["sha256"]) == (nodes, figures["events"], figures["sha256"])
    checked = json.loads(bftrain("import", "--dry-run", log, "--json").out)
    assert checked["findings"] == figures["findings"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_what_helps(bftrain: CommandLine, name: str, tmp_path: Path) -> None:
    ended = bftrain("import", site_data(name), "-o", tmp_path / "log.npz")
    assert ended.code == 3
    assert REFUSED[name] in ended.err
    assert list(tmp_path.iterdir()) == []


def test_the_summit_log_has_its_published_size(bftrain: CommandLine, tmp_path: Path) -> None:
    log = tmp_path / "summit.npz"
    figures = imported(bftrain, "summit/ndstat-10sdn6-evt.tar.gz", log)
    assert figures["rows"] == {"read": 23_883, "used": 23_883, "aside": {}}
    output = json.loads(bftrain("inspect", log, "--json").out)
    assert (output["nodes"], output["events"], output["fragments"]["count"]) == (4734, 23883, 423502)
    assert f"{100 * output['idle_share']:.2f}" == "8.27"
    assert round(output["idle_node_hours"]) == 140_182


def test_a_year_of_theta_tells_of_its_downtime(bftrain: CommandLine, tmp_path: Path) -> None:
    figures = imported(bftrain, "swf/theta_2022.swf.gz", tmp_path / "theta.npz", "--counts")
    assert figures["rows"]["used"] == 23_911
    found = {each["name"]: each for each in figures["findings"]}
    assert "or 461.4 h with shorter ones" in found["suspected_downtime"]["done"]
    assert found["over_capacity"]["count"] == 9
