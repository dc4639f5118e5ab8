"""Source, tests and documentation do without words that readers stumble over."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

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
PHRASES = re.compile("slip of the pen|dust of rounding|less than nothing|[Mm]ake sense of|# NaN too")  # in code
PLAIN_ROOMS = ["bftrain/*.py", "solvers/*.py", "replay/*.py", "datasets/*.py", "elastic/*.py"]
FIRST_WORD = re.compile(r'"""(Give(?! up| back)|Say|Tell|Hear|Know|Learn|Lay|Hold|Refuse|What|Who|How)\b')
PATTERNS = ["bftrain/*.py", "solvers/*.py", "replay/*.py", "datasets/*.py", "elastic/*.py", "tests/*.py", "*.md"]
THIS = "tests/unit/docs/test_plain_words.py"
ALLOWED = {
    "told_before",  # a key of provenance files
    '"nobody competes"',  # in the journals of live runs
    'getpwnam("nobody")',  # the account
    "Rerun(anew=...)",  # what the changelog says is called otherwise now
}


def _texts(*patterns: str) -> Iterator[tuple[str, str]]:
    """Yield the files in the repository and their texts."""
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    if not listed:
        pytest.skip("a source archive has no list of files; in a clone: make test TESTS=tests/unit/docs")
    for name in sorted(set(listed.split()) - {THIS}):
        yield name, (ROOT / name).read_text(encoding="utf-8")


def _places(name: str, text: str, pattern: re.Pattern[str]) -> list[str]:
    return [f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]}" for found in pattern.finditer(text)]


def test_source_tests_and_docs_use_plain_words() -> None:
    found = []
    for name, text in _texts(*PATTERNS):
        rest = text
        for word in ALLOWED:
            rest = rest.replace(word, "")
        found += _places(name, rest, WORD)
    assert found == [], "name the user, the task or the process that is meant; see CONTRIBUTING.md"


def test_code_does_without_riddles() -> None:
    found = [place for name, text in _texts(*PATTERNS[:-1]) for place in _places(name, text, PHRASES)]
    assert found == [], "see the examples in CONTRIBUTING.md"


def test_docstrings_begin_with_a_plain_word() -> None:
    found = [place for name, text in _texts(*PLAIN_ROOMS) for place in _places(name, text, FIRST_WORD)]
    assert found == [], "begin with Return, Compute, Parse, Raise, Whether or a noun; see CONTRIBUTING.md"
