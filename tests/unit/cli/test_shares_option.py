"""``--shares``: who shares by which weight, for one decision, for a live run, and in what a journal remembers."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from bftrain import Entity, Journal, Settings
from bftrain.live import process
from bftrain.live.model.site_config import SiteSettings
from tests.helpers.in_process import CommandLine
from tests.helpers.lines import lines
from tests.unit.core.samples import joined, nodes, spec, submitted

PROBLEMS = Path(__file__).parents[3] / "examples" / "problems"
TWO = {
    "nodes": {"a": 1},
    "policy": "hierarchical",
    "tasks": [
        {"name": "one", "speeds": {"a": 1.0}, "entity": "ann"},
        {"name": "two", "speeds": {"a": 1.0}, "entity": "bob"},
    ],
}


@pytest.fixture
def shares(tmp_path: Path) -> Path:
    path = tmp_path / "shares.toml"
    path.write_text("[entities]\nann = 3\n[prices]\na = 2\n")
    return path


def test_time_is_shared_by_weight(bftrain: CommandLine, shares: Path) -> None:
    ended = bftrain("solve", "-", "--shares", shares, "--json", stdin=json.dumps(TWO))
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["speeds"] == {"one": pytest.approx(0.75), "two": pytest.approx(0.25)}
    dear = {"nodes": {"a": 1, "b": 1}, "policy": "cost", "tasks": [{"name": "x", "speeds": {"a": 3.0, "b": 2.0}}]}
    ended = bftrain("solve", "-", "--shares", shares, "--json", stdin=json.dumps(dear))
    assert json.loads(ended.out)["shares"] == {"x": {"b": 1.0}}  # 2 samples for 1 are more than 3 for 2


def test_nodes_are_divided_with_the_users_in_the_problem(bftrain: CommandLine, shares: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from bftrain.deciding.objectives import throughput\n\n\nclass Mine:\n    name = 'mine'\n"
        "    uses_work_left = False\n\n    def values(self, task, sizes):\n"
        "        return throughput.values(task, sizes)\n\n"
        "    def recast(self, table):\n        print(dict(table.problem.entities), dict(table.problem.prices))\n"
        "        return table\n"
    )
    ended = bftrain(
        "solve", PROBLEMS / "quickstart.json", "--shares", shares, "--objective", f"{tmp_path / 'mine.py'}:Mine"
    )
    assert ended.code == 0, ended.err
    assert "'ann': Entity(weight=3.0" in ended.out
    assert "{'a': 2.0}" in ended.out


def test_a_live_run_has_them_in_its_settings(
    bftrain: CommandLine, shares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # not where another test may run one
    seen: list[SiteSettings] = []
    site = tmp_path / "site.toml"
    site.write_text('[scheduler]\nname = "local"\n')
    with mock.patch.object(process, "run", lambda site, *_, **__: seen.append(site)):
        assert bftrain("live", "--config", site, "--shares", shares).code == 0
    assert dict(seen[0].deciding.entities) == {"ann": Entity(weight=3.0)}
    assert dict(seen[0].deciding.prices) == {"a": 2.0}
    ended = bftrain("live", "--demo", "--shares", shares)
    assert (ended.code, ended.out) == (2, "")
    assert "--shares: cannot be used with --demo" in ended.err


def test_a_journal_needs_no_shares_file_to_be_repeated(bftrain: CommandLine, shares: Path, tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    moment = [joined(0, *nodes(1, 4)), *(submitted(0, spec(f"t{n}", 1, 3, user="ann", work_samples=9.0)) for n in "ab")]
    asked = ("--journal", journal, "--admission", "campaigns", "--shares", shares)
    ended = bftrain("decide", *asked, stdin=lines([moment]))
    assert ended.code == 0, ended.err
    shares.unlink()
    with Journal.open(journal) as opened:
        assert opened.settings == Settings(
            admission="campaigns", entities={"ann": Entity(weight=3.0)}, prices={"a": 2.0}
        )
    ended = bftrain("journal", "verify", journal)
    assert ended.code == 0, ended.err
    ended = bftrain("journal", "show", journal)
    assert ended.code == 0, ended.err
