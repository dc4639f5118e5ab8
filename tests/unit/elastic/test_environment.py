"""The environment of a task: what runs before its command, in front of it, and which Python; tried with a real bash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.lifecycles import LauncherJob

SCRIPT = ("train.py", "--x", "1")


def job(**more: Any) -> LauncherJob:  # noqa: ANN401 - any field
    return LauncherJob(argv=SCRIPT, folder="f", **more)


def words(argv: Sequence[str] = SCRIPT, launcher: str = "native", **more: Any) -> tuple[tuple[str, ...], bool]:  # noqa: ANN401 - any field
    made = LauncherJob(argv=tuple(argv), folder="f", **more)
    return made.command({"BFTRAIN_LAUNCHER": launcher}, warm=argv[0].endswith(".py"))


def ran(*setup: str, argv: Sequence[str] = ("printf", "%s|"), **more: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 - as above
    found, warm = words(argv, setup=setup, **more)
    assert not warm
    return subprocess.run(found, capture_output=True, text=True, check=False)


def test_lines_run_in_their_order_in_one_shell_and_nothing_needs_quotes() -> None:
    odd = ["a b", "'", "$HOME", "*", ";exit 9"]
    done = ran("export A=1", "f() { export A=$A$1; }", "f ' 2'", argv=["sh", "-c", 'printf "%s|" "$A" "$@"', "x", *odd])
    assert (done.returncode, done.stdout, done.stderr) == (0, "|".join(["1 2", *odd, ""]), "")


def test_a_file_that_is_sourced_sees_no_arguments(tmp_path: Any) -> None:  # noqa: ANN401 - a path
    (tmp_path / "setup.sh").write_text('export SEEN="$#"\n')
    assert ran(f"source {tmp_path}/setup.sh", argv=["sh", "-c", 'echo "$SEEN"']).stdout == "0\n"


def test_a_line_that_fails_ends_it_and_is_named() -> None:
    done = ran("true", "source /nowhere/x.sh", "echo never", argv=["echo", "never"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "bftrain: setup failed: source /nowhere/x.sh" in done.stderr


@pytest.mark.parametrize("words_", [{"setup": ["a"], "prefix": ["b"]}, {"setup": ("a",), "prefix": ("b",)}])
def test_a_job_in_json_has_lists(words_: dict[str, Any]) -> None:
    found = LauncherJob.read({"argv": ["x"], "folder": "f", **words_})
    assert (found.setup, found.prefix) == (("a",), ("b",))


def test_a_script_of_horovod_has_a_starter_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(7)\n")
    found, warm = words([str(script)], "horovod", python=sys.executable)
    assert (found[1:3], warm) == (("-m", "bftrain_elastic.agent.script"), False)
    path = {"PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run(found, env=path, check=False).returncode == 7
