"""tools/mutants.py: faults are tried in a copy, and the table fits the source."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import mutants

ROOT = mutants.ROOT
FAULTS = mutants.read_faults()


@pytest.mark.parametrize("path", sorted({fault.file for fault in FAULTS}))
def test_the_text_of_each_fault_occurs_once(path: str) -> None:
    source = (ROOT / path).read_text()
    for fault in FAULTS:
        if fault.file == path:
            assert source.count(fault.text) == 1, f"{fault.fault}: adapt tests/mutations.toml"
            compile(source.replace(fault.text, fault.replacement), path, "exec")


def test_the_tests_of_each_fault_exist() -> None:
    missing = {test for fault in FAULTS for test in fault.tests if not (ROOT / test.partition("::")[0]).exists()}
    assert not missing
    assert len({fault.fault for fault in FAULTS}) == len(FAULTS)


def test_faults_are_tried_in_a_copy(tmp_path: Path) -> None:
    package, imports, tests = tmp_path / "double", tmp_path / mutants.IMPORTS, tmp_path / "tests"
    for folder in (package, imports, tests):
        folder.mkdir(parents=True)
    source = "def double(number):\n    return 2 * number\n"
    (package / "__init__.py").write_text(source)
    (imports / "double").symlink_to("../../double")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tests / "test_good.py").write_text("from double import double\n\ndef test_two():\n    assert double(1) == 2\n")
    (tests / "test_poor.py").write_text("from double import double\n\ndef test_none():\n    assert double(0) == 0\n")
    (tests / "test_red.py").write_text("def test_red():\n    assert False\n")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)

    def fault(text: str, test: str) -> mutants.Fault:
        return mutants.Fault(
            fault="triples", file="double/__init__.py", text=text, replacement="3 *", tests=(f"tests/{test}",)
        )

    faults = [
        fault("2 *", "test_good.py"),
        fault("2 *", "test_poor.py"),
        fault("4 *", "test_poor.py"),
        fault("2 *", "test_red.py"),
        fault("2 *", "test_good.py"),
    ]
    found = [(verdict, test) for _, verdict, test, _ in mutants.try_faults(tmp_path, faults, count=2)]
    assert found == [
        (mutants.CAUGHT, "tests/test_good.py::test_two"),
        (mutants.ESCAPED, ""),
        (mutants.STALE, ""),
        (mutants.BROKEN, "tests/test_red.py::test_red"),
        (mutants.CAUGHT, "tests/test_good.py::test_two"),
    ]
    assert (package / "__init__.py").read_text() == source
