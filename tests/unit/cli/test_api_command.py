"""``bftrain api``: the addresses, the description and the dashboard, which uses exported metrics only."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bftrain.live.api.routes import ROUTES, description
from bftrain.values import wire
from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import submit
from tests.helpers.live_thread import live_thread

# What PromQL and Grafana know by themselves
_WORDS = {"sum", "rate", "increase", "histogram_quantile", "by", "on", "and", "le", "instance"}


def dashboard(bftrain: CommandLine) -> Any:  # noqa: ANN401 - JSON is what it is
    return json.loads(bftrain("api", "--grafana").out)


def expressions(board: Any) -> list[str]:  # noqa: ANN401 - as above
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


def names(given: Iterable[str]) -> set[str]:
    words = re.findall(r"\b[a-z_]{2,}\b", re.sub(r"\{[^}]*\}|\[[^]]*\]", "", "\n".join(given)))
    return {word.removesuffix("_bucket") for word in words if word not in _WORDS}


def alerts(bftrain: CommandLine) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(bftrain("api", "--alerts").out)["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_every_alert_says_what_is_wrong_and_what_helps(bftrain: CommandLine) -> None:
    rules = alerts(bftrain)
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert "{{ $labels.instance }}" in rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
    assert yaml.safe_load(json.loads(bftrain("api", "--alerts", "--json").out)["alerts.yml"])["groups"]


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool here: apt-get install prometheus")
def test_promtool_finds_nothing_wrong(bftrain: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(bftrain("api", "--alerts").out)
    of_the_board = [
        {"record": f"r{number}", "expr": re.sub(r"\$__range|\$__rate_interval", "5m", expression)}
        for number, expression in enumerate(expressions(dashboard(bftrain)))
    ]
    (tmp_path / "board.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": of_the_board}]}))
    for name in ("alerts.yml", "board.yml"):
        done = subprocess.run(
            ["promtool", "check", "rules", tmp_path / name], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_all_addresses_are_listed(bftrain: CommandLine) -> None:
    out = bftrain("api").out
    for route in ROUTES:
        assert route.public or re.search(rf"{route.method} +{re.escape(route.path)} ", out), route.path
    assert "Use nodes again. For operators." in out
    rows = json.loads(bftrain("api", "--json").out)
    drain = {"method": "POST", "path": "/v1/drain", "operators": True}
    assert any(drain.items() <= row.items() for row in rows)


def test_the_description_is_printed_for_programs(bftrain: CommandLine) -> None:
    expected = json.loads(wire.encode(description()))
    assert json.loads(bftrain("api", "--openapi").out) == expected
    assert json.loads(bftrain("api", "--openapi", "--json").out) == expected
    assert len(bftrain("api", "--openapi", "--json").out.splitlines()) == 1


def test_the_dashboard_uses_all_exported_metrics_and_no_others(bftrain: CommandLine, tmp_path: Path) -> None:
    with live_thread(tmp_path) as run:
        run.inside.world.pilots = {"waiting": 1.0}  # type: ignore[attr-defined]  # as schedulers with pilots have
        run.do(lambda inside: submit(inside.service, "a"))
        run.do(lambda inside: inside.world.lend("n1"))
        text = run.do(lambda inside: inside.service.metrics.text())
    exported = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    board = expressions(dashboard(bftrain))
    assert all('instance=~"$instance"' in expression for expression in board)
    asked = names(board)
    assert asked <= exported, asked - exported
    warned = names(rule["expr"] for rule in alerts(bftrain))
    assert warned <= exported | {"up"}, warned - exported
    unshown = {"bftrain_start_time_seconds", "bftrain_last_decision_timestamp_seconds", "process_open_fds"}
    assert exported - asked == unshown | {"bftrain_journal_steps"}


def test_the_dashboard_is_whole(bftrain: CommandLine) -> None:
    board = dashboard(bftrain)
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "instance"}
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)), "two panels in one place"
    assert max(x for x, _ in cells) < 24
    for panel in panels:
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
