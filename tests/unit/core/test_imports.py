"""What is loaded when: counted modules, not seconds, so it says the same on every machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.program import environment

SLOW = {"pandas", "scipy", "numpy", "rich", "msgspec", "matplotlib", "ClusterShell", "sqlite3"}


def loaded_by(code: str) -> set[str]:
    """Name the modules that are loaded when ``code`` has run in a Python of its own, even if it exits."""
    report = (
        "import atexit, json, sys; atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{report}\n{code}"],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def tops(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def command_line(*arguments: str) -> str:
    return f"import sys\nsys.argv = {['bftrain', *arguments]!r}\nfrom bftrain.cli.main import run\nrun()"


def test_the_facade_loads_nothing_until_it_is_asked() -> None:
    modules = loaded_by("import bftrain")
    assert not tops(modules) & (SLOW | {"click"})
    assert {name for name in modules if name.startswith("bftrain")} == {"bftrain", "bftrain.version"}


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("decide", "--help"), ("completion", "bash")])
def test_help_loads_little(arguments: tuple[str, ...]) -> None:
    modules = loaded_by(command_line(*arguments))
    from_settings = {"msgspec"} if "decide" in arguments else set()  # its options derive from these
    assert not tops(modules) & ((SLOW | {"bftrain_replay"}) - from_settings)
    assert len(modules) < 165  # 116 when this was written; 33 are there before anything is imported


_THREADS = """
import atexit, os, sys

def report():
    print("numpy" in sys.modules, len(os.listdir("/proc/self/task")), os.getenv("OPENBLAS_NUM_THREADS"))

atexit.register(report)
"""


@pytest.mark.parametrize(("name", "threads"), [("", 1), ("OPENBLAS_NUM_THREADS", 2), ("OMP_NUM_THREADS", 2)])
def test_commands_start_no_threads_for_linear_algebra_unless_users_do(tmp_path: Path, name: str, threads: int) -> None:
    log = command_line("generate", "log", "--nodes", "4", "--days", "0.1", "-o", str(tmp_path / "log.npz"))
    given = {name: value for name, value in environment().items() if not name.endswith("_NUM_THREADS")}
    given |= {name: "2"} if name else {}
    code = [sys.executable, "-c", f"{_THREADS}\n{log}"]
    done = subprocess.run(code, capture_output=True, text=True, env=given, timeout=60, check=True)
    threads = min(threads, len(os.sched_getaffinity(0)))
    assert done.stdout.splitlines()[-1] == f"True {threads} {given.get('OPENBLAS_NUM_THREADS')}"


def test_the_demo_replays_without_modules_that_it_does_not_need(tmp_path: Path) -> None:
    modules = loaded_by(command_line("demo", "--quick", "-o", str(tmp_path / "demo")))
    assert modules & {"statistics", "pandas", "scipy", "bftrain_datasets.readers"} == set()


def test_the_training_side_needs_the_standard_library_alone() -> None:
    code = (
        "import bftrain_elastic, pkgutil, importlib\n"
        "for module in pkgutil.walk_packages(bftrain_elastic.__path__, 'bftrain_elastic.'):\n"
        "    if not module.name.endswith(('.huggingface', '.lightning', '.horovod_training')):\n"  # for these libraries
        "        importlib.import_module(module.name)"
    )
    foreign = tops(loaded_by(code)) - set(sys.stdlib_module_names) - tops(loaded_by("pass"))
    assert foreign == {"bftrain_elastic"}


def test_deciding_loads_no_data_frames_and_no_tables() -> None:
    modules = loaded_by("from bftrain import Harvester, Settings, build_harvester\nbuild_harvester(Settings())")
    assert not tops(modules) & {"pandas", "rich", "matplotlib"}
