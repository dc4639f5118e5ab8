"""Commands that write one file, or pictures into a folder, never replace what bftrain did not write."""

from __future__ import annotations

import re
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from bftrain import generate_log, generate_mix, save_log, save_tasks
from tests.helpers.in_process import CommandLine

SWF = "".join(f"{job} {job} 0 100 1 -1 -1 1 200 -1 1 1 1 -1 1 -1 -1 -1\n" for job in range(1, 5))
LACKS_PARQUET = not find_spec("pyarrow")
LACKS_PICTURES = not find_spec("vl_convert")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: Path) -> Path:
    """Return a folder with inputs of all commands, in which they run."""
    monkeypatch.chdir(tmp_path)
    save_log(generate_log(12, 0.2, 3), tmp_path / "log.npz")
    save_tasks(generate_mix(5, 3), tmp_path / "tasks.toml")
    (tmp_path / "jobs.swf").write_text(f"; MaxProcs: 4\n{SWF}", encoding="utf-8")
    assert journal.parent == tmp_path
    return tmp_path


COMMANDS = {
    "generate log -o new.npz --nodes 4 --days 0.1": "new.npz",
    "generate log -o new.csv --nodes 4 --days 0.1": "new.csv",
    "import jobs.swf -o new.npz --counts": "new.npz",
    "slice log.npz -o new.csv --nodes 0:4": "new.csv",
    "anonymise log.npz -o new.npz": "new.npz",
    "tasks generate -o new.toml": "new.toml",
    "tasks generate -o new.csv": "new.csv",
    "tasks import jobs.swf -o new.toml": "new.toml",
    "journal export harvest.db -o new.npz": "new.npz",
    "journal export harvest.db -o log2.npz --tasks new.toml": "new.toml",
    "journal export harvest.db -o log2.npz --config new.toml": "new.toml",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_one_file(bftrain: CommandLine, place: Path, command: str) -> None:
    check(bftrain, command, place / COMMANDS[command])


@pytest.mark.skipif(LACKS_PARQUET, reason="the extra parquet is not installed")
def test_a_parquet_file(bftrain: CommandLine, place: Path) -> None:
    check(bftrain, "generate log -o new.parquet --nodes 4 --days 0.1", place / "new.parquet")
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet  # noqa: PLC0415 - an extra

    pa.parquet.write_table(pa.table({"mine": [1, 2]}), place / "new.parquet")
    assert bftrain("generate", "log", "-o", "new.parquet").code == 2


def test_an_export(bftrain: CommandLine, place: Path) -> None:
    assert bftrain("replay", "log.npz", "--tasks", "tasks.toml", "-o", "out", "--quick").code == 0
    check(bftrain, "export out --to perfetto -o new.x", place / "new.x")


def test_another_archive_of_arrays_is_not_ours(bftrain: CommandLine, place: Path) -> None:
    with zipfile.ZipFile(place / "new.npz", "w") as archive:
        archive.writestr("weights.npy", b"precious")
    assert bftrain("generate", "log", "-o", "new.npz").code == 2


def test_tasks_written_by_hand_are_not_ours(bftrain: CommandLine, place: Path) -> None:
    (place / "mine.toml").write_text('# made by me\n[[task]]\nname = "a"\n')
    assert bftrain("tasks", "generate", "-o", "mine.toml").code == 2


@pytest.mark.skipif(LACKS_PICTURES, reason="vl-convert-python is not installed")
@pytest.mark.parametrize("form", ["svg", "png"])
def test_pictures(bftrain: CommandLine, place: Path, form: str) -> None:
    assert bftrain("replay", "log.npz", "--tasks", "tasks.toml", "-o", "out", "--quick").code == 0
    (place / "pictures").mkdir()
    (place / "pictures" / "other.svg").write_text("mine")
    check(bftrain, f"report out --{form} pictures", place / "pictures" / f"sizes.{form}")
    drawn = sorted(path.name for path in (place / "pictures").iterdir())
    (place / "pictures" / f"sizes.{form}").write_bytes(b"\x89PNG\r\n\x1a\n of another program")
    assert bftrain("report", "out", f"--{form}", "pictures").code == 2
    assert sorted(path.name for path in (place / "pictures").iterdir()) == drawn


def check(bftrain: CommandLine, command: str, path: Path) -> None:
    """Check that a file of others is refused and left alone, and that an empty one and one's own are replaced."""
    words = command.split()
    path.write_text("precious\n")
    before = {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    ended = bftrain(*words)
    assert (ended.code, ended.out) == (2, "")
    kept = "that bftrain wrote, and is left unchanged \\(move it away, or name another file\\)\n"
    assert re.search(rf"{re.escape(path.name)}: is not a [a-z ]+ {kept}$", ended.err)
    assert {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()} == before
    path.write_text("")
    assert bftrain(*words).code == 0
    assert path.stat().st_size > 0
    assert bftrain(*words).code == 0
