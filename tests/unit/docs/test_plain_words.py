"""Source, tests and documentation do without words that readers stumble over."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.helpers.pages import ROOT

RIDDLES = (
    "told",
    "nobody",
    "whoever",
    "whatever",
    "anew",
    "whom",
    "somebody",
    "everybody",
    "anybody",
    "he",
    "his",
    "him",
)
WORD = re.compile(rf"(?<![a-z'])({'|'.join(RIDDLES)})(?![a-z'])", re.IGNORECASE)
PATTERNS = ["bftrain/*.py", "solvers/*.py", "replay/*.py", "datasets/*.py", "elastic/*.py", "tests/*.py", "*.md"]
THIS = "tests/unit/docs/test_plain_words.py"
ALLOWED = {
    "told_before",  # a key of provenance files
    '"nobody competes"',  # in the journals of live runs
    'getpwnam("nobody")',  # the account
    "Rerun(anew=...)",  # what the changelog says is called otherwise now
}


def test_source_tests_and_docs_use_plain_words() -> None:
    listed = subprocess.run(
        ["git", "ls-files", *PATTERNS], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    if not listed:
        pytest.skip("a source archive has no list of files; in a clone: make test TESTS=tests/unit/docs")
    found = []
    for name in set(listed.split()) - {THIS}:
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1):
            text = line
            for word in ALLOWED:
                text = text.replace(word, "")
            found += [f"{name}:{number}: {word}" for word in WORD.findall(text)]
    assert sorted(found) == [], "name the user, the task or the process that is meant; see CONTRIBUTING.md"
