"""Tables on narrow terminals: in parts, and no word or figure is broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console

from bftrain import save_tasks
from bftrain.cli.output import NarrowTable
from tests.helpers.in_process import CommandLine
from tests.helpers.round_cases import gang

PROBLEMS = Path(__file__).parents[3] / "examples" / "problems"
KINDS = {"v100": 4.0, "k80": 1.0}
ROUNDS = ("replay", "--cluster", "v100=2,k80=1", "--round", "360", "--policy", "max-min", "--tasks", "tasks.toml")
SCHEDULE = ("schedule", "log.swf", "-o", "out", "--overwrite")


@pytest.fixture(autouse=True)
def in_a_folder_with_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_tasks(
        [gang(f"t{number}", 90_000.0 + number, 1, 100.0 * number, speeds=KINDS) for number in range(8)],
        Path("tasks.toml"),
    )
    jobs = (f"{n} {60 * n} -1 {900 + n} 1 -1 -1 1 1000 -1 1 {n % 2} -1 -1 -1 -1 -1 -1" for n in range(1, 9))
    Path("log.swf").write_text("\n".join(("; MaxNodes: 2", "; MaxProcs: 2", *jobs, "")))


def words_of(text: str) -> set[str]:
    without_times = re.sub(r"\b\d+\.\d\d\b", "", text)  # of a solver: they differ from run to run
    return set(re.findall(r"[A-Za-z_]+|\d[\d.,]*%?", without_times))


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize(
    "command",
    [
        ROUNDS,
        SCHEDULE,
        ("solve", PROBLEMS / "kinds.json"),
        ("solve", PROBLEMS / "quickstart.json"),
        ("solve", PROBLEMS / "quickstart.json", "--solver", "all"),
    ],
    ids=["rounds", "schedule", "kinds", "one solver", "all solvers"],
)
def test_no_word_and_no_figure_is_broken(
    bftrain: CommandLine, command: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bftrain(*command)
    monkeypatch.setattr("bftrain.cli.output._PIPE_WIDTH", width)
    narrow = bftrain(*command)
    assert (whole.code, narrow.code) == (0, 0)
    assert max(map(len, narrow.out.splitlines())) <= width
    assert words_of(whole.out) - words_of(narrow.out) == set()
    assert not re.search(r"^\s*%", narrow.out, re.MULTILINE)  # without its figure


def printed(what: NarrowTable, width: int) -> str:
    console = Console(width=width, force_terminal=False, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_each_part_has_the_names_and_the_first_the_title() -> None:
    rows = [(name, "1" * 12, "2" * 12, "3" * 12) for name in ("first-task", "second-task")]
    said = printed(NarrowTable("A title", ("", "one", "two", "three"), rows), 40)
    assert said.splitlines()[0] == "A title"
    assert [said.count(words) for words in ("A title", "first-task", "1" * 12, "3" * 12)] == [1, 3, 2, 2]
    assert said.index("one") < said.index("two") < said.index("three")


def test_a_name_longer_than_half_the_terminal_is_broken_at_its_hyphens() -> None:
    said = printed(NarrowTable("", ("", "one", "two"), [("a-name-of-many-many-parts", "1" * 9, "2" * 9)]), 30)
    assert {line.split()[0] for line in said.splitlines() if "-" in line} == {"a-name-of-many-", "many-parts"}
    assert max(map(len, said.splitlines())) <= 30


def test_rows_may_have_several_columns_for_a_name() -> None:
    columns = ("policy", "seed", "completion time, mean", "rho, 95 in 100", "status")
    rows = [("fifo", "1", "54.3 min", "1.09", "done"), ("max-min", "2", "9.48 h", "1.14", "open")]
    table = NarrowTable("A title", columns, rows, naming=2, left=(0, 1, 4))
    wide, narrow = printed(table, 100), printed(table, 40)
    assert [line.split() for line in wide.splitlines()[4:6]] == [
        ["fifo", "1", "54.3", "min", "1.09", "done"],
        ["max-min", "2", "9.48", "h", "1.14", "open"],
    ]
    assert max(map(len, narrow.splitlines())) <= 40
    assert [narrow.count(text) for text in ("A title", "fifo, 1", "max-min, 2", "54.3 min", "1.14", "open")] == [
        1, 2, 2, 1, 1, 1,
    ]  # fmt: skip
    assert "completion" in narrow


def test_nothing_swept_is_a_table_without_names() -> None:
    said = printed(
        NarrowTable("", ("completion time, mean", "coverage"), [("54.3 min", "93.1 %")], naming=0, left=()), 20
    )
    assert [text in said for text in ("completion", "54.3 min", "93.1 %")] == [True] * 3
