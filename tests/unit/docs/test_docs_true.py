"""What the documents say is so: examples decode, named files exist, named commands are real."""

import json
import re
import tomllib
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import yaml

from bftrain import Action, Cause, Event, TaskSpec, __version__
from bftrain.cli.main import COMMANDS
from bftrain.registry import BUILT_IN
from bftrain.values import wire

ROOT = Path(__file__).parents[3]
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EVENTS_DOC = (ROOT / "docs/events.md").read_text()
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()


def examples(key: str) -> list[str]:
    return [line for line in EVENTS_DOC.splitlines() if line.startswith(f'{{"{key}"')]


@pytest.mark.parametrize(("key", "kind"), [("event", Event), ("action", Action)])
def test_every_example_line_is_read_and_every_type_has_one(key: str, kind: type) -> None:
    read = [wire.decode(line, kind, where=line) for line in examples(key)]
    assert {type(value) for value in read} == set(get_args(kind))


def test_every_cause_of_a_loss_is_explained() -> None:
    assert all(f"`{cause}`" in EVENTS_DOC for cause in Cause)


def test_the_full_example_of_a_task_has_every_field_with_its_default() -> None:
    *_, short, full = (json.loads(line)["spec"] for line in examples("event") if '"task_submitted"' in line)
    fields = {field.name: field for field in msgspec.structs.fields(TaskSpec)}
    assert set(full) == set(fields)
    assert set(short) == {name for name, field in fields.items() if field.required}
    illustrated = set(short) | {"work_samples", "user", "campaign"}
    assert {name: value for name, value in full.items() if name not in illustrated} == {
        name: field.default for name, field in fields.items() if name not in illustrated
    }


def test_every_room_and_file_in_the_architecture_exists() -> None:
    tree = ARCHITECTURE.split("## Picture 1")[1].split("```")[3]
    top = re.findall(r"^(\S+/)\s", tree, re.MULTILINE)
    inside = [name for line in re.findall(r"^  (\S.*?)   ", tree, re.MULTILINE) for name in line.split()]
    assert len(top) >= 6
    assert len(inside) >= 10
    assert [name for name in top if not (ROOT / name).is_dir()] == []
    assert [name for name in inside if not (ROOT / "bftrain" / name).exists()] == []
    modules = {path.name for path in (ROOT / "bftrain").glob("*.py") if not path.name.startswith("_")}
    assert modules <= set(inside)


def test_every_file_that_the_architecture_names_exists() -> None:
    named = set(re.findall(r"`([\w/]+/\w+\.py)`", ARCHITECTURE))
    rooms = [ROOT / "bftrain", *(ROOT.glob("*/bftrain_*"))]
    assert len(named) > 40
    assert [name for name in named if not any((room / name).is_file() for room in (ROOT, *rooms))] == []


def test_the_citation_names_this_version() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert found["version"] == __version__
    assert f"version {__version__}" in (ROOT / "docs/reproduce.md").read_text()
    # What the Citation File Format 1.2.0 demands, and has words for
    assert {"cff-version", "message", "title", "authors"} <= set(found)
    assert (found["cff-version"], found["type"], found["license"]) == ("1.2.0", "software", "Apache-2.0")
    assert all({"name"} == set(each) for each in found["authors"])
    for each in found["references"]:
        assert {"type", "title", "authors"} <= set(each)
        assert all({"family-names", "given-names"} == set(author) for author in each["authors"])
        assert {one["type"] for one in each["identifiers"]} <= {"doi", "url", "swh", "other"}


@pytest.mark.parametrize("page", ["docs/objectives.md", "CHANGELOG.md"])
def test_every_solver_and_objective_is_listed_by_its_name(page: str) -> None:
    documented = set(re.findall(r"`([\w-]+)`", (ROOT / page).read_text()))
    assert {*BUILT_IN["solver"], *BUILT_IN["objective"]} <= documented


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_named_in_code_exists(path: Path) -> None:
    code = re.findall(r"```sh\n(.*?)```", path.read_text(), re.DOTALL)
    called = re.findall(r"^(?:.*\| *)?bftrain ([a-z][\w-]*)", "\n".join(code), re.MULTILINE)
    assert [name for name in called if name not in COMMANDS] == []


def test_every_dependency_and_extra_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    explained = (ROOT / "docs/dependencies.md").read_text()
    wanted = [requirement for extra in (project["dependencies"], *extras.values()) for requirement in extra]
    packages = {re.split(r"[\[<>=; ]", requirement)[0] for requirement in wanted} - {"bftrain"}
    # python-mip is called mip where it is installed from
    missing = [name for name in packages if not re.search(rf"\b{re.escape(name)}\b", explained)]
    assert missing == []
    assert [name for name in extras if f"| `{name}` |" not in explained] == []
