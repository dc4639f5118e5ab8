"""Every command's help, and what each says to an option, a file or a folder that it cannot use."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import generate_log, generate_mix, save_log, save_tasks
from tests.helpers.every_command import every_command
from tests.helpers.in_process import CommandLine
from tests.helpers.program import check_help

EVENTS = Path(__file__).parents[3] / "examples" / "events.jsonl"
COMMANDS = [path for path, _ in every_command()]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.mark.parametrize("command", [(), *COMMANDS], ids=" ".join)
def test_help_fits_a_plain_terminal(bftrain: CommandLine, command: tuple[str, ...]) -> None:
    check_help(bftrain, command)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_a_matter_of_usage(bftrain: CommandLine, command: tuple[str, ...]) -> None:
    ended = bftrain(*command, "--no-such-option")
    assert (ended.code, ended.out) == (2, "")
    assert "--no-such-option" in ended.err


READERS = {
    "decide": ("decide", "FILE"),
    "decide --config": ("decide", str(EVENTS), "--config", "FILE"),
    "journal show": ("journal", "show", "FILE"),
    "journal verify": ("journal", "verify", "FILE"),
    "inspect": ("inspect", "FILE"),
    "slice": ("slice", "FILE", "-o", "out.npz", "--nodes", "0:1"),
    "anonymise": ("anonymise", "FILE", "-o", "out.npz"),
    "tasks import": ("tasks", "import", "FILE", "FILE", "-o", "out.toml"),
    "replay": ("replay", "FILE", "--tasks", "TASKS", "-o", "out"),
    "replay --tasks": ("replay", "LOG", "--tasks", "FILE", "-o", "out"),
    "solve": ("solve", "FILE"),
}


@pytest.fixture(scope="module")
def good_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a log and tasks that are as they should be."""
    place = tmp_path_factory.mktemp("good")
    log, tasks = place / "log.npz", place / "tasks.toml"
    save_log(generate_log(8, 0.1, 1), log)
    save_tasks(generate_mix(3, 1), tasks)
    return {"LOG": str(log), "TASKS": str(tasks)}


def with_files(command: tuple[str, ...], file: Path, good_files: dict[str, str]) -> list[str]:
    words = {**good_files, "FILE": str(file)}
    return [words.get(word, word) for word in command]


@pytest.mark.parametrize("command", READERS.values(), ids=READERS)
def test_a_missing_file_is_named(
    bftrain: CommandLine, command: tuple[str, ...], tmp_path: Path, good_files: dict[str, str]
) -> None:
    ended = bftrain(*with_files(command, tmp_path / "no such file", good_files))
    assert ended.code in {2, 3}
    assert "no such file" in ended.err
    assert (ended.out, "Traceback" in ended.err) == ("", False)


@pytest.mark.parametrize("command", READERS.values(), ids=READERS)
def test_a_directory_is_no_file(
    bftrain: CommandLine, command: tuple[str, ...], tmp_path: Path, good_files: dict[str, str]
) -> None:
    place = tmp_path / "a directory"
    place.mkdir()
    ended = bftrain(*with_files(command, place, good_files))
    assert ended.code in {2, 3}
    assert "a directory" in ended.err
    assert (ended.out, "Traceback" in ended.err) == ("", False)


@pytest.mark.parametrize(
    "content",
    [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)), b"\xff\xfe\0" * 500, b"{" * 5000, b"\0"],
    ids=["picture", "not UTF-8", "brackets", "zero"],
)
@pytest.mark.parametrize("command", READERS.values(), ids=READERS)
def test_a_file_of_something_else_is_refused_by_name(
    bftrain: CommandLine, command: tuple[str, ...], content: bytes, tmp_path: Path, good_files: dict[str, str]
) -> None:
    file = tmp_path / "other.bin"
    file.write_bytes(content)
    ended = bftrain(*with_files(command, file, good_files), "--json")
    assert ended.code == 3
    assert "other.bin" in ended.err
    assert len(ended.err) < 1000  # the reason, not the file
    assert (ended.out, "Traceback" in ended.err) == ("", False)


@pytest.mark.parametrize("command", [READERS[name] for name in ("inspect", "replay", "solve", "journal show")])
def test_an_empty_file_is_bad_input(
    bftrain: CommandLine, command: tuple[str, ...], tmp_path: Path, good_files: dict[str, str]
) -> None:
    file = tmp_path / "empty"
    file.touch()
    ended = bftrain(*with_files(command, file, good_files))
    assert ended.code == 3
    assert "empty" in ended.err
