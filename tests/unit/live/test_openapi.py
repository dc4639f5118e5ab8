"""What the API says of itself: a valid document, with every address, and true of what it answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from bftrain import BadInput, Submission
from bftrain.live.api.routes import description
from bftrain.live.model.schemas import Nodes
from bftrain.values import wire
from tests.helpers.asking import ask
from tests.helpers.live_inside import decided, in_a_loop, live_inside, ourselves, submit

WHOLE: dict[str, Any] = json.loads(wire.encode(description()))
SCHEMAS = WHOLE["components"]["schemas"]


def checker(name: str) -> Any:  # noqa: ANN401 - a validator of jsonschema_rs
    return jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}})


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in WHOLE["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def test_every_schema_is_one() -> None:
    for schema in SCHEMAS.values():
        jsonschema_rs.meta.validate(schema)
    for _, _, operation in operations():
        for parameter in operation.get("parameters", []):
            jsonschema_rs.meta.validate(parameter["schema"])


@pytest.mark.parametrize(
    ("kind", "name", "given", "good"),
    [
        (Submission, "Submission", {"run": {"argv": ["a"]}, "max_nodes": 1}, True),
        (Submission, "Submission", {"run": {"argv": []}, "max_nodes": 1}, False),
        (Submission, "Submission", {"run": {"argv": [""]}, "max_nodes": 1}, False),
        (Submission, "Submission", {"run": {"argv": ["a"], "stop_grace_s": -1}, "max_nodes": 1}, False),
        (Submission, "Submission", {"run": {"argv": ["a"], "workers_per_node": -1}, "max_nodes": 1}, False),
        (Submission, "Submission", {"run": {"argv": ["a"]}, "max_nodes": 0}, False),
        (Submission, "Submission", {"run": {"argv": ["a"]}, "max_nodes": 1_000_001}, False),
        (Submission, "Submission", {"run": {"argv": ["a"]}, "max_nodes": 2, "min_nodes": 0}, False),
        (Submission, "Submission", {"run": {"argv": ["a"]}, "max_nodes": 2, "name": "-a"}, False),
        (Submission, "Submission", {"run": {"argv": ["a"]}, "max_nodes": 2, "name": "a" * 101}, False),
        (Submission, "Submission", {"run": {"argv": ["a"]}, "max_nodes": 2, "name": "a" * 100}, True),
        (Submission, "Submission", {"run": {"argv": ["a"]}, "max_nodes": 2, "odd": 1}, False),
        (Submission, "Submission", {"run": {"argv": ["a"]}, "max_nodes": 2, "curve": None}, True),
        (Nodes, "Nodes", {"nodes": ["a", "b"]}, True),
        (Nodes, "Nodes", {"nodes": []}, False),
        (Nodes, "Nodes", {"nodes": ["a", "a"]}, False),
        (Nodes, "Nodes", {"nodes": [""]}, False),
    ],
)
def test_the_description_and_what_is_taken_agree(kind: type, name: str, given: object, *, good: bool) -> None:
    assert checker(name).is_valid(given) is good
    try:
        wire.decode(json.dumps(given), kind)
        taken = True
    except BadInput:
        taken = False
    assert taken is good


@in_a_loop
async def test_what_is_answered_is_as_described(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a", work_samples=100.0)
        await submit(inside.service, "b")
        await inside.service.cancel(ourselves(), "b")
        inside.world.lend("n1", "n2")
        await decided(inside.daemon)
        inside.world.tell("a", "confirmed", size=2)
        inside.world.tell("a", "report", step=1, samples=10, size=2, loss=float("nan"))
        await decided(inside.daemon)
        address = inside.api.addresses[0]
        for path, name, listed in (
            ("/v1/status", "StatusView", False),
            ("/v1/tasks?all=true", "TaskView", True),
            ("/v1/tasks/a", "TaskView", False),
            ("/v1/tasks/a/logs", "LogFile", True),
            ("/v1/nodes", "NodeView", True),
            ("/v1/history", "HistoryView", False),
            ("/v1/page", "PageView", False),
            ("/v1/tasks/c", "Refused", False),
        ):
            answer = (await ask(address, f"GET {path}")).json
            for one in answer if listed else [answer]:
                checker(name).validate(one)
        assert (await ask(address, "GET /v1/openapi.json")).json == WHOLE


@in_a_loop
async def test_updates_for_watchers_are_as_described(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a")
        address = inside.api.addresses[0]
        watching = asyncio.create_task(ask(address, "GET /v1/watch?updates=2"))
        inside.world.lend("n1")
        await decided(inside.daemon)
        answered = await watching
    assert answered.headers["content-type"] == "text/event-stream"
    updates = re.findall(rb"^data: (.*)$", answered.body, re.MULTILINE)
    assert len(updates) == 2
    for update in updates:
        checker("Update").validate(json.loads(update))
