"""Run pytest, then rerun the failed tests one by one.

``tools/run_pytest.py ARGUMENT...`` passes its arguments on. Many tests start programs and wait for them, in parallel on
few cores, so a test may fail only because the machine was busy. A test that passes on the second try is listed, because
it should be made sturdier, and does not fail the run. If many tests fail, there is no rerun.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MOST_AGAIN: Final = 8
FAILED: Final = 1  # exit code of pytest
LAST_FAILED: Final = "v/cache/lastfailed"


def run_pytest(arguments: Sequence[str], cwd: Path | None = None) -> int:
    """Run pytest in ``cwd`` and return its exit code, or the exit code of the rerun."""
    pytest = (sys.executable, "-m", "pytest")
    # With a separate cache, its list of failures belongs to this run, and not to an earlier or parallel one
    with tempfile.TemporaryDirectory() as cache:
        code = subprocess.run([*pytest, "-o", f"cache_dir={cache}", *arguments], cwd=cwd, check=False).returncode
        kept = Path(cache) / LAST_FAILED
        failed = list(json.loads(kept.read_text(encoding="utf-8"))) if code == FAILED and kept.exists() else []
    if not 0 < len(failed) <= MOST_AGAIN:
        return code
    _say("Once more, by themselves", failed)
    code = subprocess.run([*pytest, "-q", *failed], cwd=cwd, check=False).returncode
    if code == 0:
        _say("Failed beside other tests and passed by themselves; make them sturdier", failed)
    return code


def _say(text: str, tests: Sequence[str]) -> None:
    sys.stdout.write("\n".join(("", f"{text}:", *tests, "")))
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(run_pytest(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
