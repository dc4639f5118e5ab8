"""make and the scripts behind it: when all is well they say little, and when it is not they say what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:19999/"  # nothing listens there, so it is refused at once, with or without a network


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python whose virtual environments are copies of one: to install pip into each takes seconds."""
    place = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", place / "made"], check=True)
    copies = f'mkdir -p "$3" && cp -a "{place}/made/." "$3"'
    fake_python(place, "python3", f'[ "$1 $2" = "-m venv" ] || exec "{sys.executable}" "$@"\n{copies}')
    return place / "python3"


@pytest.fixture
def checkout(tmp_path: Path, python: Path) -> Path:
    """Return what make needs of the repository, in a directory with an awkward name; ``../python3`` is our Python."""
    (tmp_path / "python3").symlink_to(python)
    place = tmp_path / 'it\'s a "dir" of ünïts'
    for name in ("tools", "bftrain", "solvers", "replay", "datasets", "elastic"):
        shutil.copytree(ROOT / name, place / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    return place


def run(checkout: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command there without any pip settings of this machine, and without a network."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "MAKE", "PYTHON"))}
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "0"}
    return subprocess.run(
        command,
        cwd=checkout,
        env={**inherited, **offline, "PYTHON": str(checkout.parent / "python3"), **env},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def fake_python(directory: Path, name: str, script: str) -> None:
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def path_without_python(tmp_path: Path) -> str:
    """Return a PATH with the ordinary commands but no Python at all."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("sh", "dirname", "awk", "sed", "flock", "cat", "ls", "df", "mkdir", "rm", "find", "grep", "tail"):
        (commands / name).symlink_to(shutil.which(name) or pytest.fail(f"no {name} here"))
    return str(commands)


def test_help_is_what_make_alone_gives_and_names_every_target(checkout: Path) -> None:
    done = run(checkout, "make")
    assert done.returncode == 0
    for target in ("demo", "test", "check", "lowest", "versions", "bench", "soak", "horovod", "docs", "clean"):
        assert f"make {target} " in done.stdout


def test_an_old_python_is_named_with_what_to_install(checkout: Path, tmp_path: Path) -> None:
    fake_python(tmp_path / "old", "python3", 'case "$1" in -c) echo 3.9.2 ;; *) cat >/dev/null; exit 1 ;; esac')
    path = f"{tmp_path / 'old'}:{path_without_python(tmp_path)}"
    done = run(checkout, "tools/venv.sh", "base", PATH=path, PYTHON="")
    assert done.returncode != 0
    assert "python3 is 3.9.2" in done.stderr
    assert "needs Python 3.11 to 3.13" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    ("named", "words"), [("nosuchpython", "there is no such command"), ("OLD", "is version 3.9.2")]
)
def test_the_python_asked_for_does_not_do(checkout: Path, tmp_path: Path, named: str, words: str) -> None:
    fake_python(tmp_path / "old", "python3", 'case "$1" in -c) echo 3.9.2 ;; *) cat >/dev/null; exit 1 ;; esac')
    asked = named.replace("OLD", str(tmp_path / "old" / "python3"))
    done = run(checkout, "make", "demo", f"PYTHON={asked}")
    assert done.returncode != 0
    assert words in done.stderr


def test_no_network_is_said_in_words_and_the_next_run_does_not_trust_what_is_there(checkout: Path) -> None:
    first = run(checkout, "make", "demo")
    assert first.returncode != 0
    assert "network cannot be reached" in first.stderr
    assert ".venv/.bftrain/install.log" in first.stderr
    assert (checkout / ".venv/.bftrain/install.log").is_file()
    second = run(checkout, "make", "demo")
    assert "Making .venv again: an earlier installation did not end." in second.stdout


@pytest.mark.parametrize("half", ["empty", pytest.param("dead python", marks=pytest.mark.soak), "no pip"])
def test_a_half_made_environment_is_made_again(checkout: Path, half: str) -> None:
    venv = checkout / ".venv"
    venv.mkdir()
    if half == "dead python":
        (venv / "bin").mkdir()
        (venv / "bin/python").symlink_to("/nonexistent/python3")
        (venv / "pyvenv.cfg").write_text("home = /nonexistent\n")
    if half == "no pip":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    done = run(checkout, "tools/venv.sh", "base")
    assert "network cannot be reached" in done.stderr  # so it got as far as calling pip
    assert (venv / "bin/pip").exists()


@pytest.mark.parametrize("made_by", ["make", "its owner"])
def test_an_environment_with_other_packages_is_never_deleted(checkout: Path, made_by: str) -> None:
    venv = checkout / ".venv"
    if made_by == "make":
        run(checkout, "tools/venv.sh", "base")  # fails without a network, but has made the environment
        (venv / ".bftrain/unfinished").unlink()
    else:
        subprocess.run([checkout.parent / "python3", "-m", "venv", venv], check=True)
    thesis = next(venv.glob("lib/python3*/site-packages")) / "my_thesis-1.0.dist-info"
    thesis.mkdir()
    (venv / "bin/python").unlink()
    (venv / "bin/python").symlink_to("/nonexistent/python3")
    done = run(checkout, "tools/venv.sh", "base")
    assert done.returncode == 1
    assert (
        "cannot be used: its Python does not run. It holds packages that make did not install (my_thesis)"
        in done.stderr
    )
    assert thesis.exists()


def test_a_directory_of_someone_else_is_left_alone(checkout: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years of work")
    for target in ("demo", "clean"):
        run(checkout, "make", target, f"VENV={precious}")
        assert [file.name for file in precious.iterdir()] == ["thesis.tex"]
    done = run(checkout, "make", "demo", f"VENV={precious}")
    assert done.returncode != 0
    assert "is no virtual environment" in done.stderr


def test_a_full_disk_is_said_in_words(checkout: Path, tmp_path: Path) -> None:
    disk = tmp_path / "small disk"
    disk.mkdir()
    # A file system of our own that no other process sees; it goes with the process
    private = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    mount = 'mount -t tmpfs -o size=4m tmpfs "$1"'
    if run(checkout, *private, mount, "sh", str(disk)).returncode != 0:
        pytest.skip("no private mounts here (a container may forbid them); on a machine of your own: make test")
    done = run(checkout, *private, f'{mount} && make demo VENV="$1/venv"', "sh", str(disk))
    assert done.returncode != 0
    assert "The disk is full" in done.stderr
    assert "set VENV or TMPDIR to another disk" in done.stderr


FAKE_TEST_PYTHON = """
echo "$@" >>calls
case "$*" in
    *--if-kept*) test -e kept ;;
    *--build-only*) echo built >>calls ;;
    *"not horovod"*) exit "$OTHERS" ;;
    *"and horovod"*) exit "$WITH_HOROVOD" ;;
esac
"""


@pytest.mark.parametrize(
    ("others", "with_horovod", "code"),
    [("0", "0", 0), ("1", "0", 1), ("0", "1", 1), ("0", "5", 0), ("5", "0", 0), ("5", "5", 5)],
)
def test_horovod_is_built_beside_the_tests_that_do_not_need_it(
    checkout: Path, others: str, with_horovod: str, code: int
) -> None:
    (checkout / "venv").mkdir()
    fake_python(checkout / "venv" / "bin", "python", FAKE_TEST_PYTHON)
    env = {"VENV": "venv", "HOROVOD": "yes", "OTHERS": others, "WITH_HOROVOD": with_horovod}
    done = run(checkout, "tools/run-tests.sh", "-q", "tests/unit", **env)
    assert done.returncode == code, done.stderr
    calls = (checkout / "calls").read_text().splitlines()
    assert "built" in calls
    tests = [call for call in calls if call.startswith("tools/run_pytest.py")]
    assert tests == [
        "tools/run_pytest.py -m not bench and not soak and not horovod -q tests/unit",
        "tools/run_pytest.py -m not bench and not soak and horovod -q tests/unit",
    ]
    assert calls.index("built") < calls.index(tests[1])
