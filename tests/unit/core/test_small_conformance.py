"""The suite for admissions: what is built in passes them, and what breaks the contract does not."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bftrain import registry
from bftrain.ports import Queue
from tests.helpers import part_conformance as conformance
from tests.unit.core import parts

EXAMPLE = Path(__file__).parents[3] / "examples" / "admissions" / "campaigns.py"
SPEC = spec_from_file_location("campaigns", EXAMPLE)
assert SPEC is not None
assert SPEC.loader is not None
MODULE = sys.modules["campaigns"] = module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
CampaignAdmission: Any = MODULE.CampaignAdmission

PAGE = (Path(__file__).parents[3] / "docs/tutorials/your-objective.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", registry.BUILT_IN["admission"])
def test_every_built_in_admission_passes(name: str) -> None:
    settings = {"entities": conformance.USERS} if name == "quota" else {}
    conformance.check_admission(registry.load("admission", name), **settings)


def test_the_example_of_an_admission_with_state_passes() -> None:
    conformance.check_admission(CampaignAdmission, entities=conformance.USERS)


def test_the_admission_in_the_documents_passes() -> None:
    names: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(\"\"\"One task of every user.*?)```", PAGE, re.DOTALL)
    exec(block, names)  # noqa: S102 - our own page
    conformance.check_admission(names["Turns"])


class Base:
    name = "odd"

    def __init__(self, max_tasks: int) -> None:
        self.max_tasks = max_tasks

    def choose(self, queue: Queue) -> Sequence[str] | Mapping[str, int]:
        return list(queue)[: self.max_tasks]


class Nameless(Base):
    name = ""


class Inventive(Base):
    def choose(self, queue: Queue) -> Sequence[str]:
        return [*list(queue), "unknown"]


class Stingy(Base):
    def choose(self, queue: Queue) -> Mapping[str, int]:
        return dict.fromkeys(queue, 1)


class Dice(parts.Fickle):
    name = "dice"
    _seeds = count()

    def __init__(self, max_tasks: int) -> None:  # noqa: ARG002 - it does not count
        super().__init__(next(self._seeds))

    def choose(self, queue: Queue) -> Sequence[str]:
        return super().choose(queue)[:-1]  # but for the one who does not exist


class Learns(Base):
    """It changes while it is asked."""

    asked = 0

    def choose(self, queue: Queue) -> Sequence[str]:
        self.asked += 1
        return list(queue)[: self.asked % 3]


class Forgets(CampaignAdmission):  # type: ignore[misc]  # loaded by its name
    """It loses what it should keep."""

    def take_up(self, kept: Mapping[str, Any]) -> None:
        super().take_up({**kept, "numbers": kept["numbers"] + 1})


class Stumbles(CampaignAdmission):  # type: ignore[misc]  # loaded by its name
    def note(self, news: Any) -> None:  # noqa: ANN401 - an update of the core
        raise KeyError(news.time_s)


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (Nameless, "is called '', not a name"),
        (lambda _most: object(), "has no name, or no choose(queue)"),
        (Inventive, "names 'unknown', not an unfinished task"),
        (Stingy, "limits task '"),
        (Dice, "returns another result"),
        (Learns, "returns another result when called again"),
        (Forgets, "does not restore its saved state exactly"),
        (Stumbles, "admission 'campaigns': raised KeyError"),
    ],
)
def test_a_part_that_breaks_the_contract_is_found_out(factory: Callable[..., object], words: str) -> None:
    with pytest.raises(conformance.Nonconformance) as found:
        conformance.check_admission(factory)
    assert words in str(found.value)
