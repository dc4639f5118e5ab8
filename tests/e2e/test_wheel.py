"""The package as it is published: built, looked into, installed in an empty environment, and used from elsewhere."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOW_TO = (
    (ROOT / "docs" / "how-to" / "install.md")
    .read_text()
    .partition("## A wheel for compute nodes")[2]
    .partition("\n## ")[0]
)
BUILD, INSTALL = re.findall(r"```sh\n(.*)\n```", HOW_TO)
PACKAGES = ("bftrain", "bftrain_solvers", "bftrain_replay", "bftrain_datasets", "bftrain_elastic")


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """Run a command as in a fresh shell that knows nothing of this repository; gives what it says."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))} | more
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that holds the source archive."""
    place = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", place, ROOT, cwd=place)
    return place


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """Return a wheel that the command of the page builds, without a download of the build tools."""
    (archive,) = built.glob("bftrain-*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(built, filter="data")
    checkout = built / archive.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", *shlex.split(BUILD), "--no-build-isolation", cwd=checkout)
    (found,) = (checkout / "dist").glob("bftrain-*.whl")
    return found


def test_the_page_names_the_wheel_as_it_is_called(wheel: Path) -> None:
    name = re.sub(r"none-.+[.]whl", "none-manylinux_2_17_x86_64.whl", wheel.name)
    assert f"pip install './{name}[torch]'" in HOW_TO


def test_the_wheel_holds_compiled_code_for_any_python_of_its_platform(wheel: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    if platform.libc_ver()[0] == "glibc":
        assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{platform.machine()}.whl")
    assert [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]


def test_without_a_compiler_the_wheel_is_pure_python(built: Path, tmp_path: Path) -> None:
    (archive,) = built.glob("bftrain-*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", unpacked, cwd=tmp_path, CC="false")
    (pure,) = (unpacked / "dist").glob("*.whl")
    assert pure.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(pure).namelist() if name.endswith(".so")]


def test_the_wheel_holds_the_five_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {name for name in tops if not name.endswith(".dist-info")} == set(PACKAGES)
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
    assert not [name for name in names if "test" in name.lower() or "__pycache__" in name]
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    homes = {"bftrain": ".", "bftrain_elastic": "elastic"}
    ours = {
        str(file.relative_to(home))
        for package in PACKAGES
        for home in [ROOT / homes.get(package, package.removeprefix("bftrain_"))]
        for file in (home / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert held == ours


def test_the_source_archive_holds_what_is_needed_to_test_it(built: Path) -> None:
    (archive,) = built.glob("bftrain-*.tar.gz")
    with tarfile.open(archive) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "tools/venv.sh", "tests/conftest.py", "docs"}
    assert {name for name in needed if not any(f"{held}/".startswith(f"{name}/") for held in names)} == set()
    assert not [name for name in names if name.startswith((".venv", ".git/", "demo/", "site/"))]


def test_installed_in_an_empty_environment_it_works_from_any_directory(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    bin_dir = tmp_path / "venv" / "bin"
    quick = {"PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_QUIET": "1"}
    run("sh", "-c", f"{shlex.quote(str(bin_dir))}/{INSTALL}", cwd=wheel.parent, **quick)
    place = tmp_path / 'it\'s a "dir"\t[red]of ünïts & $HOME;'
    place.mkdir()
    bftrain = bin_dir / "bftrain"
    version = wheel.name.split("-")[1]
    assert run(bftrain, "--version", cwd=place) == f"bftrain {version}\n"
    assert run(bin_dir / "python", "-m", "bftrain", "--version", cwd=place) == f"bftrain {version}\n"
    assert ("numpy only" in run(bftrain, "doctor", "-v", cwd=place)) == (shutil.which("cc") is None)
    assert "numpy only" in run(bftrain, "doctor", "-v", cwd=place, BFTRAIN_NO_COMPILED="1")
    assert "'.[torch]' in the checkout, or with the path of a wheel" in run(bftrain, "doctor", "--json", cwd=place)
    said = run(bftrain, "demo", "-o", "my first demo", cwd=place)
    assert "equal-share" in said
    assert (place / "my first demo" / "report.html").stat().st_size > 10_000
