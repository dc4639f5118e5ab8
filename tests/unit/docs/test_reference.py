"""Reference pages: generated ones are up to date, and every option, name, column and part is on its page."""

from __future__ import annotations

import csv
import json
import re
import runpy
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
import yaml  # type: ignore[import-untyped]  # its types are not installed

from bftrain import Action, BftrainError, Cause, Event, SpeedCurve, TaskSpec, __version__, save_tasks
from bftrain.registry import BUILT_IN
from bftrain.values import wire
from tests.helpers.every_command import CALLS, SHORT, every_command, only_a_group, prepare, words_of
from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import decided, in_a_loop, live_inside
from tests.helpers.pages import ROOT
from tests.helpers.schedules import Row, swf
from tests.helpers.site_data import site_data
from tools import readers_page
from tools.command_pages import command_pages

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
COMMAND_PAGES = command_pages()
PROGRAMS = (REFERENCE / "programs.md").read_text(encoding="utf-8")


def names_in(page: str) -> set[str]:
    """Return what stands between backticks on a page."""
    return set(re.findall(r"`([\w-]+)`", (DOCS / page).read_text(encoding="utf-8")))


def plain(text: str) -> str:
    return re.sub(r"\\(.)|`", r"\1", re.sub(r"\[(.*?)\]\(\.\./\.\./\1\.md\)", r"docs/\1.md", text))


@pytest.mark.parametrize("path", [path for path, command in every_command() if not only_a_group(command)], ids=" ".join)
def test_every_option_is_documented_with_its_help(
    bftrain: CommandLine, path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("click.formatting.FORCED_WIDTH", 2000)
    after = re.split(rf"^#+ bftrain {' '.join(path)}$", COMMAND_PAGES[f"{path[0]}.md"], flags=re.MULTILINE)
    (_, section) = after  # each command has one heading
    section = re.split(r"^#+ bftrain ", section, flags=re.MULTILINE)[0]
    rows = {names: plain(words) for names, words in re.findall(r"^\| `(-[^`]*)` \| (.*?) \| ", section, re.MULTILINE)}
    page = bftrain(*path, "--help").out
    listed = re.sub(r"\n {3,}", "   ", page)  # a long name has a line of its own
    options = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in re.findall(r"^  -.*", listed, re.MULTILINE))
    assert set(rows) == set(options)
    assert [names for names, words in options.items() if not words.startswith(rows[names].rstrip("."))] == []


def test_the_index_of_commands_and_the_page_for_programs_list_all_and_every_exit_code() -> None:
    def codes(kind: type[BftrainError]) -> Iterator[int]:
        yield kind.exit_code
        for each in kind.__subclasses__():
            yield from codes(each)

    index = COMMAND_PAGES["index.md"]
    commands = {name.split()[0] for name in CALLS}
    assert set(COMMAND_PAGES) == {"index.md", *(f"{name}.md" for name in commands)}
    assert [name for name in commands if f"| [`bftrain {name}`]({name}.md) |" not in index] == []
    for page in (index, PROGRAMS.split("## Exit codes")[1].split("\n## ")[0]):
        assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == {0, *codes(BftrainError)}


ROWS = {
    name: (kind, names)
    for name, kind, names in re.findall(r"^\| `([a-z -]+)` \| ([^|]+) \| (.+) \|$", PROGRAMS, re.MULTILINE)
}
ELSEWHERE = (
    "replay",
    "rounds",
    "journal replay",
    "schedule",
    "sweep",
    "decide",
)  # their names are on other pages, or in their files


def promised(name: str) -> set[str]:
    """Return the names that the row of a command lists, and those of the rows that it refers to."""
    text = ROWS[name][1]
    others = [other for other in re.findall(r"(?<!\w)as `([a-z -]+)`", text) if other in ROWS]
    return set(re.findall(r"`(\w+)`", text)).union(*map(promised, others))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    prepare(folder)
    return folder


@pytest.mark.parametrize("name", [name for name, call in SHORT.items() if name not in ELSEWHERE and not call.nothing])
def test_every_name_in_json_is_promised_to_programs(name: str, bftrain: CommandLine, prepared: Path) -> None:
    journal = prepared / "journal.db"
    if name.startswith("journal") and not journal.exists():
        assert bftrain("decide", prepared / "events.jsonl", "--journal", journal).code == 0
    lines = [json.loads(line) for line in bftrain(*words_of(name, prepared, "--json", "-q")).out.splitlines()]
    value = lines if CALLS[name].lines else lines[0]
    assert isinstance(value, list) is ("list" in ROWS[name][0] or CALLS[name].lines)
    printed = {key for each in (value if isinstance(value, list) else [value]) for key in each}
    assert (bool(printed), printed - promised(name)) == (True, set())


@pytest.mark.parametrize("name", BUILT_IN["reader"])
def test_every_reader_lists_its_columns_and_reads_them(name: str) -> None:
    columns = readers_page.columns_of(name)
    assert any(required for _, required, _ in columns) or name == "pbs-events"
    package = Path(str(import_module(BUILT_IN["reader"][name]).__file__)).parents[1]
    code = "".join(path.read_text(encoding="utf-8").lower() for path in package.glob("*/*.py"))
    own = Path(str(import_module(BUILT_IN["reader"][name]).__file__)).read_text(encoding="utf-8").split('"""', 2)[2]
    for names in re.findall(r"``([A-Za-z_.]+)``", " ".join(names for names, _, _ in columns)):
        for part in names.lower().split("."):
            assert part in own.lower() or f'"{part}"' in code, f"{name} does not read {names}"


@pytest.mark.parametrize(
    ("port", "page"),
    [
        ("objective", "reference/objectives.md"),
        ("solver", "reference/objectives.md"),
        ("rounds", "reference/policies.md"),
        ("rounds", "how-to/rounds.md"),
        ("sharing", "reference/policies.md"),
        ("queue_policy", "how-to/schedule.md"),
        ("launcher", "how-to/parts.md"),
    ],
)
def test_every_part_is_on_its_page(port: str, page: str) -> None:
    assert {name for kind, names in BUILT_IN.items() if kind == port for name in names} <= names_in(page)


def test_every_column_of_the_tables_is_documented(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    curve = SpeedCurve(nodes=(1,), rate=(1.0,))
    save_tasks([TaskSpec(name="a", curve=curve, max_nodes=1, work_samples=9.0)], Path("tasks.toml"))
    swf(Path("log.swf"), [Row(0, 9), Row(1, 9)], "MaxNodes: 1")
    assert bftrain("rounds", "--cluster", "v100=1", "--round", 60, "--tasks", "tasks.toml", "-o", "rounds").code == 0
    assert bftrain("schedule", "log.swf", "-o", "schedule").code == 0
    for name in ("rounds", "schedule"):
        tables = {path: next(csv.reader(path.read_text().splitlines())) for path in Path(name).glob("*.csv")}
        assert len(tables) > 1
        assert {path.name: set(columns) - names_in(f"how-to/{name}.md") for path, columns in tables.items()} == {
            path.name: set() for path in tables
        }


def test_every_status_of_the_api_is_on_its_page() -> None:
    section = PROGRAMS.partition("| status | when |")[2].partition("\n\n")[0]
    listed = {int(status) for row in section.splitlines() for status in re.findall(r"\b\d{3}\b", row.split(" | ")[0])}
    assert listed == {400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 431, 500, 503}


@in_a_loop
async def test_every_metric_on_the_page_exists(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        await decided(inside.daemon)
        metrics = set(re.findall(r"^# HELP (\S+) ", inside.service.metrics.text(), re.MULTILINE))
    section = PROGRAMS.partition("### Prometheus")[2].partition("\n### ")[0]
    named = set(re.findall(r"bftrain_\w+", section)) - {"bftrain_pilots"}  # not with the scheduler of this test
    assert named
    assert named - metrics == set()


@pytest.mark.parametrize(("key", "kind"), [("event", Event), ("action", Action)])
def test_every_example_line_of_events_is_read_and_every_type_has_one(key: str, kind: type) -> None:
    text = (REFERENCE / "programs.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith(f'{{"{key}"')]
    assert {type(wire.decode(line, kind, where=line)) for line in lines} == set(get_args(kind))
    assert [cause for cause in Cause if f"`{cause}`" not in text] == []
    if key == "event":  # the full example of a task has every field
        *_, full = (json.loads(line)["spec"] for line in lines if '"task_submitted"' in line)
        assert set(full) == set(TaskSpec.__struct_fields__)


def test_the_measured_figures_are_what_comes_out_of_a_replay() -> None:
    script = runpy.run_path(str(DOCS / "scripts" / "policy_costs.py"))
    page = (REFERENCE / "policies.md").read_text(encoding="utf-8")
    result = script["replayed"]("throughput")
    for row in (
        script["row"]("throughput", result, result.harvested_samples),
        script["round_row"]("las", result.harvested_samples),
    ):
        name, *figures = row
        assert re.search(rf"^\| `?{name}`? \| {re.escape(' | '.join(figures))} \|$", page, re.MULTILINE), row


def test_the_errors_of_the_model_of_batches_are_those_on_the_page() -> None:
    model = runpy.run_path(str(DOCS / "scripts" / "batch_model.py"))
    row = model["row"](site_data("profiles") / "adaptdl_bert_scalability.csv")
    assert f"| {' | '.join(row)} |\n" in (REFERENCE / "objectives.md").read_text(encoding="utf-8")


def test_the_citation_names_this_version_in_its_format() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (found["version"], found["cff-version"], found["type"]) == (__version__, "1.2.0", "software")
    assert {"message", "title", "authors", "license"} <= set(found)


def test_every_dependency_and_extra_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    explained = (DOCS / "how-to" / "install.md").read_text(encoding="utf-8")
    wanted = [requirement for extra in (project["dependencies"], *extras.values()) for requirement in extra]
    packages = {re.split(r"[\[<>=; ]", requirement)[0] for requirement in wanted} - {"bftrain"}
    assert [name for name in packages if not re.search(rf"\b{re.escape(name)}\b", explained)] == []
    assert [name for name in extras if f"| `{name}` |" not in explained] == []
