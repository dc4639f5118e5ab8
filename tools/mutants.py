"""Put the faults of tests/mutations.toml into a copy of the tree, one at a time, and run the tests that must notice.

``tools/mutants.py [-n COPIES] [WORD...]`` selects the faults with one of the words in their entry, or all. It prints a
table, and exits with 1 unless the unmodified tree passes its tests and the tests notice each fault.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

ROOT: Final = Path(__file__).resolve().parents[1]
IMPORTS: Final = Path("tools", "import_path")
CAUGHT, ESCAPED, STALE, BROKEN = "caught", "ESCAPED", "stale", "fails anyway"
PASSED, FAILED = 0, (1, 2)  # exit codes of pytest; 2: a test module cannot be imported
LIMIT_S: Final = 300.0  # limit of a set of tests; a fault that makes them hang is noticed


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A source text, its replacement, the resulting fault, and the tests that must notice it."""

    fault: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]


def read_faults(path: Path = ROOT / "tests" / "mutations.toml") -> list[Fault]:
    """Return the faults of a table."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["faults"]
    return [Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows]


class TreeCopy:
    """A copy of a checkout's tracked files for trying faults."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder, self._closed, self._tried = folder, False, 0
        self._process: subprocess.Popen[bytes] | None = None
        # Most plug-ins of pytest are not needed, and loading them takes longer than many tests
        self._env = {**os.environ, "PYTHONPATH": str(folder / IMPORTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        git = ["git", "-C", str(root), "ls-files", "-z"]
        listed = subprocess.run(git, capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if os.path.lexists(root / name):  # not removed since
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name, follow_symlinks=False)
        for package in (folder / IMPORTS).iterdir():
            program = f"import {package.name} as one; assert one.__file__.startswith({str(folder)!r}), one.__file__"
            subprocess.run([sys.executable, "-P", "-c", program], env=self._env, check=True)

    def run(self, tests: Sequence[str]) -> tuple[int, str]:
        """Run tests; return pytest's exit code, and the failed test."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        with tempfile.TemporaryFile() as output:
            self._process = subprocess.Popen(
                command, cwd=self._folder, env=self._env, stdout=output, stderr=output, start_new_session=True
            )
            try:
                code = self._process.wait(0 if self._closed else LIMIT_S)
            except subprocess.TimeoutExpired:
                return FAILED[0], f"nothing within {LIMIT_S:g} s"
            finally:
                self._kill()
            output.seek(0)
            found = re.search(r"^(?:FAILED|ERROR) (\S+)", output.read().decode(errors="replace"), re.MULTILINE)
        return code, found[1] if found else ""

    def try_fault(self, fault: Fault) -> tuple[str, str]:
        """Return whether the tests notice a fault, and which test did."""
        path = self._folder / fault.file
        source = path.read_text(encoding="utf-8") if path.exists() else ""
        if source.count(fault.text) != 1:
            return STALE, ""
        times = path.stat()
        path.write_text(source.replace(fault.text, fault.replacement), encoding="utf-8")
        # Python reuses bytecode if size and second match: each fault has a separate second
        self._tried += 1
        os.utime(path, (times.st_atime, int(times.st_mtime) - self._tried))
        try:
            code, test = self.run(fault.tests)
        finally:
            path.write_text(source, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return CAUGHT if code in FAILED else ESCAPED if code == PASSED else BROKEN, test

    def close(self) -> None:
        """Stop the running tests."""
        self._closed = True
        self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def try_faults(root: Path, faults: Sequence[Fault], count: int = 1) -> Iterator[tuple[Fault, str, str, float]]:
    """Yield each fault with its verdict, the deciding test, and the seconds it took, using ``count`` copies."""
    with tempfile.TemporaryDirectory(prefix="bftrain-mutants-", ignore_cleanup_errors=True) as temporary:
        copies = [TreeCopy(root, Path(temporary).resolve() / str(number)) for number in range(count)]
        free = SimpleQueue[TreeCopy]()
        for each in copies:
            free.put(each)
        sound: dict[tuple[str, ...], Future[tuple[int, str]]] = {}  # results of the unmodified tree

        def with_copy(use: Callable[[TreeCopy], T]) -> T:
            copy = free.get()
            try:
                return use(copy)
            finally:
                free.put(copy)

        def outcome(fault: Fault) -> tuple[str, str, float]:
            code, test = sound[fault.tests].result()
            begun = time.monotonic()
            verdict, test = (BROKEN, test) if code != PASSED else with_copy(lambda copy: copy.try_fault(fault))
            return verdict, test, time.monotonic() - begun

        with ThreadPoolExecutor(count) as threads:
            try:
                tried = []
                for fault in faults:
                    if fault.tests not in sound:
                        sound[fault.tests] = threads.submit(with_copy, partial(TreeCopy.run, tests=fault.tests))
                    tried.append(threads.submit(outcome, fault))
                for fault, found in zip(faults, tried, strict=True):
                    yield fault, *found.result()
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
                for each in copies:
                    each.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Try faults, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-n", type=int, default=1, metavar="COPIES", help="copies of the tree used at the same time")
    parser.add_argument("words", nargs="*", metavar="WORD", help="part of an entry")
    given = parser.parse_args(arguments)
    faults = [one for one in read_faults() if not given.words or any(word in repr(one) for word in given.words)]
    for number in (signal.SIGINT, signal.SIGTERM):  # remove the copies on exit
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    missed = 0
    for fault, verdict, test, took_s in try_faults(ROOT, faults, given.n):
        missed += verdict != CAUGHT
        sys.stdout.write(f"{verdict:12} {took_s:6.1f} s  {fault.file}: {fault.fault}  {test}".rstrip() + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(faults) - missed} of {len(faults)} faults were caught\n")
    return int(missed > 0 or not faults)


if __name__ == "__main__":
    sys.exit(main())
