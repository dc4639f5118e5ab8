"""The exact JSON of every value, event and action, written out by hand; and how other text is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from bftrain import (
    Action,
    AllocationProblem,
    BadInput,
    BatchScaling,
    CompetingTask,
    Decision,
    Event,
    Limits,
    Plan,
    ResourceSpeeds,
    Solution,
    SpeedCurve,
    SpreadSpeed,
    SpreadSpeeds,
    TaskSpec,
)
from bftrain.values import wire
from tests.unit.core.samples import GOOD, make

CURVE = '{"nodes":[1,4],"rate":[10.5,30.0]}'
SPEC = (
    f'{{"name":"résnet 18/a","curve":{CURVE},"curves":{{"v100":{CURVE}}},"min_nodes":2,'
    '"max_nodes":4,"work_samples":130000000.0,'
    '"submit_s":5.0,"grow_cost_s":18.0,"shrink_cost_s":12.0,"start_cost_s":40.0,"weight":2.0,"deadline_s":3600.0,'
    '"user":"eva","campaign":"hpo-1","batch":{"initial":64,"noise_scale":500.0,"largest":1024,"per_node":null,"fixed_share":0.0},'
    '"spread":{"per_place":8,"speeds":[{"places":2,"kind":"","share":0.5,"curve":null},'
    f'{{"places":4,"kind":"","share":null,"curve":{CURVE}}}]}},'
    '"resources":{"cpus":[1.0,3.0],"memory_gb":[64.0],"speed":[[0.5],[1.0]]}}'
)
COMPETING = (
    f'{{"name":"a","size":1,"min_nodes":1,"max_nodes":4,"curve":{CURVE},"curves":{{"v100":{CURVE},'
    f'"":{CURVE}}},"kind":"v100","grow_cost_s":0.0,"shrink_cost_s":0.0,"start_cost_s":0.0,"weight":1.0,'
    '"work_left_samples":7.0,"deadline_in_s":-3.5,"user":"eva","age_s":2.0,"held_node_s":1.0,"done_samples":21.0,'
    '"tenure_s":0.0,"turn_s":0.0,"batch":null}'
)
# Every field of every value, in its sequence: a text that is read and written again is the same only if all are known
TEXTS: list[tuple[Any, str]] = [
    (BatchScaling, '{"initial":8,"noise_scale":50.0,"largest":null,"per_node":4,"fixed_share":0.25}'),
    (ResourceSpeeds, '{"cpus":[],"memory_gb":[16.0,64.0],"speed":[[0.5,1.0]]}'),
    (SpreadSpeed, '{"places":2,"kind":"","share":0.5,"curve":null}'),
    (SpreadSpeeds, f'{{"per_place":null,"speeds":[{{"places":3,"kind":"k80","share":null,"curve":{CURVE}}}]}}'),
    (SpeedCurve, CURVE),
    (TaskSpec, SPEC),
    (CompetingTask, COMPETING),
    (
        AllocationProblem,
        (
            f'{{"pool":8,"horizon_s":120.0,"objective":"speedup","tasks":[{COMPETING}],"pools":{{"v100":5,"":3}},'
            '"entities":{"eva":{"weight":2.0,"inside":"fair","nodes":null,"tasks":null}},"prices":{"v100":2.5}}'
        ),
    ),
    (Limits, '{"deadline_s":10.0,"relative_gap":0.0,"threads":1}'),
    (
        Solution,
        (
            '{"sizes":{"a":4},"value":1.5,"bound":1.5,"termination":"optimal","quality":"proven","solver":"exact",'
            '"solver_words":"","wall_s":0.25,"kinds":{}}'
        ),
    ),
    (
        Solution,
        (
            '{"sizes":{},"value":null,"bound":null,"termination":"failed","quality":"none","solver":"cbc",'
            '"solver_words":"killed","wall_s":0.0,"kinds":{}}'
        ),
    ),
    (Plan, '{"holdings":{"a":["n2","n1"]}}'),
    (
        Decision,
        (
            '{"time_s":12.5,"number":3,"pool":4,"used":2,"sizes":{"b":2,"a":0},"value":600.25,"bound":601.0,'
            '"solver":"highs","termination":"time_limit","quality":"feasible","solver_words":"time limit",'
            '"fallback":"highs: time limit; sizes of greedy taken","solve_s":10.0,'
            '"at_once":[{"action":"release","nodes":["n9"]},'
            '{"action":"stop","nodes":["n9"],"task":"a","cause":"preempted"}],'
            '"actions":[{"action":"start","nodes":["n1","n2"],"task":"b"}],'
            '"notes":["node \'n7\' left but was not in the pool"],"kinds":{"b":"v100"},"batches":{"b":512}}'
        ),
    ),
    (Event, '{"event":"nodes_joined","time_s":0.0,"nodes":["n1","n2"]}'),
    (Event, '{"event":"nodes_joined","time_s":0.0,"nodes":["n1"],"kind":"v100"}'),
    (Event, '{"event":"nodes_left","time_s":1.5,"nodes":["n1"]}'),
    (Event, f'{{"event":"task_submitted","time_s":2.0,"spec":{SPEC}}}'),
    *(
        (Event, f'{{"event":"task_{what}","time_s":3.0,"task":"a"}}')
        for what in ("finished", "cancelled", "paused", "resumed")
    ),
    (Event, '{"event":"task_failed","time_s":3.0,"task":"a","reason":"out of memory"}'),
    (
        Event,
        (
            f'{{"event":"task_measured","time_s":4.0,"task":"a","curve":{CURVE},"curves":null,"grow_cost_s":0.0,'
            '"shrink_cost_s":null,"start_cost_s":null,"work_left_samples":9.0,"noise_scale":null}'
        ),
    ),
    (Action, '{"action":"release","nodes":["n1"]}'),
    *((Action, f'{{"action":"{what}","nodes":["n1"],"task":"a"}}') for what in ("start", "grow")),
    (Action, '{"action":"shrink","nodes":["n1"],"task":"a","cause":"decided"}'),
    (Action, '{"action":"stop","nodes":["n1"],"task":"a","cause":"below_minimum"}'),
]


@pytest.mark.parametrize(("kind", "text"), TEXTS)
def test_the_json_form_is_exactly_this_and_reads_back(kind: type, text: str) -> None:
    value = wire.decode(text, kind)
    assert wire.encode(value).decode() == text
    assert wire.decode(text.encode(), kind) == value
    assert msgspec.json.encode(wire.plain(value)).decode() == text
    for name, written in json.loads(text).items():
        assert name in {"event", "action"} or json.loads(wire.encode(getattr(value, name))) == written


def test_defaults_are_written_too() -> None:
    for kind in (TaskSpec, CompetingTask, AllocationProblem, Decision, Solution):
        written = json.loads(wire.encode(make(kind)))
        assert tuple(written) == kind.__struct_fields__  # type: ignore[attr-defined]  # a struct
    names = ("curves", "work_samples", "deadline_s", "user", "batch")
    assert [json.loads(wire.encode(make(TaskSpec)))[name] for name in names] == [{}, None, None, "", None]


REFUSED = [
    (Event, '{"event":"nodes_joined","time_s":1,"nodes":["a",""]}', "NodesJoined.nodes: must be a list of names"),
    (Event, '{"event":"node_joined","time_s":1}', "event: invalid value 'node_joined'"),
    (Event, '{"time_s":1}', "missing required field `event`"),
    (Event, '{"event":"nodes_joined","time_s":1,"nodes":["a"],"extra":1}', "unknown field `extra`"),
    (Event, '{"event":"nodes_joined","nodes":["a"]}', "missing required field `time_s`"),
    (Event, '{"event":"nodes_joined","time_s":"soon","nodes":["a"]}', "time_s: must be a number, not text"),
    (Event, '{"event":"nodes_joined","time_s":1,"nodes":["a",3]}', "nodes[1]: must be text, not a whole number"),
    (
        Event,
        '{"event":"task_submitted","time_s":0,"spec":{"name":"a","max_nodes":2,"curve":{"nodes":[],"rate":[]}}}',
        "spec.curve: SpeedCurve.nodes: has no point (give at least one measured size)",
    ),
    (
        tuple[Event, ...],
        '[{"event":"nodes_left","time_s":0,"nodes":[]},{"event":"nodes_left","time_s":null,"nodes":[]}]',
        "[1].time_s: must be a number, not null",
    ),
    (Plan, '{"holdings":{"a":["n1"],"b":["n1"]}}', "Plan.holdings: node 'n1' serves both 'a' and 'b'"),
    (Plan, '{"holdings":{"a":3}}', "holdings[...]: must be a list, not a whole number"),
    (Event, '{"event":"nodes_joined","time_s":1e999,"nodes":[]}', "time_s: number out of range"),
    (Event, '{"event":"nodes_joined","time_s":NaN,"nodes":[]}', "not valid JSON: "),
    (Event, "", "not valid JSON: "),
    (Event, '{"event":', "not valid JSON: "),
    (Event, "nodes_joined", "not valid JSON: "),
    (Event, b'{"event":"\xff"}', "not valid JSON: "),
    (Event, '{"event":"nodes_joined","time_s":1,"nodes":["\ud800"]}', "not valid JSON: "),
    (Event, "[" * 100_000, ""),
    (Event, "3", "must be an object, not a whole number"),
]


@pytest.mark.parametrize(("kind", "text", "words"), REFUSED)
def test_refusals_name_the_place(kind: type, text: str | bytes, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        wire.decode(text, kind, where="events.jsonl:7")
    assert str(refused.value).startswith("events.jsonl:7: ")
    assert words in str(refused.value)
    assert "`$" not in str(refused.value)


@pytest.mark.parametrize("kind", list(GOOD), ids=lambda kind: kind.__name__)
def test_unknown_fields_are_refused_everywhere(kind: type) -> None:
    body = wire.plain(make(kind))
    with pytest.raises(BadInput, match="unknown field `colour`"):
        wire.decode(msgspec.json.encode({**body, "colour": "red"}), kind)
    with pytest.raises(BadInput, match="unknown field `colour`"):
        wire.convert({**body, "colour": "red"}, kind, where="here")


def test_what_is_no_value_has_no_json_form() -> None:
    with pytest.raises(NotImplementedError, match="no JSON form for object"):
        wire.encode(object())


def test_parsed_toml_becomes_a_value_and_refusals_name_the_place() -> None:
    spec = wire.convert({"name": "a", "max_nodes": 2, "curve": {"nodes": [1], "rate": [3]}}, TaskSpec)
    assert spec == TaskSpec(name="a", max_nodes=2, curve=SpeedCurve(nodes=(1,), rate=(3.0,)))
    with pytest.raises(BadInput, match=r"^t\.toml: max_nodes: must be a whole number, not text$"):
        wire.convert({"name": "a", "max_nodes": "2", "curve": {"nodes": [1], "rate": [3]}}, TaskSpec, where="t.toml")
