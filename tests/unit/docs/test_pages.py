"""Every page: links lead somewhere, code is tried, commands and files exist, pictures are shown, words are plain."""

from __future__ import annotations

import io
import re
import runpy
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import pytest

from tests.helpers.every_command import CALLS
from tests.helpers.pages import PAGES, ROOT, anchors, links, on_site, page, pictures_without_words, site_text
from tests.helpers.reading import ABOUT_PAGES, VERBS, undisclosed_needs, way

PICTURES = ROOT / "docs" / "pictures"
COMMANDS = {name.split()[0] for name in CALLS}
every_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def leads_nowhere(target: str, path: Path) -> str:
    """Return what is wrong with a link of the page at ``path``; nothing if it leads somewhere."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return "" if well_formed(target) else "no address"
    file = (path.parent / parts.path).resolve() if parts.path else path
    if not on_site(file):
        return "no such file in the project"
    if parts.fragment and parts.fragment not in anchors(site_text(file)):
        return "no such section, or not by this name everywhere"
    return ""


def well_formed(address: str) -> bool:
    """Whether a browser could ask for it: encrypted, with the full name of a host, and nothing private in it."""
    parts = urlsplit(address)
    name = parts.hostname or ""
    host = "." in name.strip(".") and all(part and part.replace("-", "").isalnum() for part in name.split("."))
    ends_well = not address.endswith((".", ",", ";", ")", "'", '"'))
    return parts.scheme == "https" and host and not parts.username and parts.port is None and ends_well


@every_page
def test_links_lead_somewhere_and_pictures_have_words(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wrong = {target: leads_nowhere(target, path) for target in links(text)}
    assert {target: why for target, why in wrong.items() if why} == {}
    assert pictures_without_words(text) == []


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        ("LICENSE", False),
        ("docs", True),
        ("docs/reference/programs.md#actions", False),
        ("docs/reference/programs.md#nothing", True),
        ("../..", True),
        ("https://example.org/a?b#c", False),
        ("http://example.org", True),
        ("https://me@example.org", True),
    ],
)
def test_a_wrong_link_is_found(target: str, *, wrong: bool) -> None:
    assert bool(leads_nowhere(target, ROOT / "README.md")) is wrong


@every_page
def test_every_block_is_tried_or_has_a_reason_and_readers_see_what_it_needs(path: Path) -> None:
    found = page(path)
    assert set(found.said) <= set(ABOUT_PAGES), "a comment that stands neither above a block nor is about the page"
    for before, block in zip([None, *found.blocks], found.blocks, strict=False):
        way(block, before)
    assert undisclosed_needs(found) == []


@every_page
def test_every_command_named_in_code_exists(path: Path) -> None:
    code = re.findall(r"```sh\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    called = re.findall(r"^(?:.*\| *)?bftrain ([a-z][\w-]*)", "\n".join(code), re.MULTILINE)
    assert [name for name in called if name not in COMMANDS] == []


def test_the_guide_lists_all_comments_for_pages() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [verb for verb in (*VERBS, *ABOUT_PAGES) if f"`<!-- {verb}: " not in guide] == []


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    rooms = [ROOT, ROOT / "bftrain", *(ROOT.glob("*/bftrain_*"))]
    named = set(re.findall(r"`([\w/]+/\w+\.py)`", text))
    assert named
    assert [name for name in named if not any((room / name).is_file() for room in rooms)] == []


def test_nothing_is_unpickled_and_no_shell_is_asked() -> None:
    """In what ships: no module that runs what it reads is imported, and nothing is started through a shell."""
    runs = re.compile(
        r"^ *(?:import|from) +(pickle|marshal|shelve|dill|cloudpickle)\b"
        r"|\b(os\.system|popen)\(|\b(shell) *= *(?!False)",
        re.MULTILINE,
    )
    found = [
        f"{path.relative_to(ROOT)}: {''.join(groups)}"
        for room in ("bftrain", "solvers", "replay", "datasets", "elastic")
        for path in (ROOT / room).rglob("*.py")
        for groups in runs.findall(path.read_text(encoding="utf-8"))
    ]
    assert found == ["datasets/bftrain_datasets/published/frame.py: pickle"]  # restricted to recorded names


def test_the_picture_on_the_home_page_is_what_its_script_draws() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "scripts" / "home_picture.py"))["picture"]()
    assert drawn == (PICTURES / "harvest.svg").read_text(), "draw it again: python docs/scripts/home_picture.py"


def test_every_picture_is_shown_sound_small_and_fetches_nothing() -> None:
    shown = {(path.parent / link).resolve() for path in PAGES for link in links(path.read_text(encoding="utf-8"))}
    assert set(PICTURES.rglob("*.*")) - shown == set()
    for path in PICTURES.rglob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own file
        assert len(text) < 100_000
        addresses = re.findall(r"(?:href|src)=\"([^\"]*)\"|url\(([^)]*)\)", text)
        assert [one or other for one, other in addresses if not (one or other).startswith(("#", "data:"))] == []


# Words that readers stumble over
RIDDLES = "told|nobody|whoever|whatever|anew|whom|somebody|everybody|anybody|he|his|him"
WORD = re.compile(rf"(?<![a-z'])({RIDDLES})(?![a-z'])", re.IGNORECASE)
PHRASES = re.compile("slip of the pen|dust of rounding|less than nothing|[Mm]ake sense of|# NaN too")  # in code
FIRST_WORD = re.compile(r'"""(Give(?! up| back)|Say|Tell|Hear|Know|Learn|Lay|Hold|Refuse|What|Who|How)\b')
# A comment is a thought of its own, not the rest of the code's sentence
CONTINUES = re.compile(
    r"# (?:of|which|that|so|whose|and|but|or|than|because|since|in|on|at|by|with|without|from|to|as|if|when|where)\b"
    r"|# (?:while|until|unless|for|through|after|before|during|between)\b"
)
CODE = ("bftrain/*.py", "solvers/*.py", "replay/*.py", "datasets/*.py", "elastic/*.py")
ALLOWED = (
    "told_before",  # a key of provenance files
    '"nobody competes"',  # in the journals of live runs
    'getpwnam("nobody")',  # the account
    "Rerun(anew=...)",  # what the changelog says is called otherwise now
)


def texts(*patterns: str) -> Iterator[tuple[str, str]]:
    """Yield the files in the repository and their texts."""
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    if not listed:
        pytest.skip("a source archive has no list of files; in a clone: make test TESTS=tests/unit/docs")
    for name in listed.split():
        path = ROOT / name
        if path != Path(__file__) and path.is_file():
            yield name, path.read_text(encoding="utf-8")


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line of each comment, with its line number."""
    previous = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            number = token.start[0]
            if number != previous + 1 or token.line.strip() != token.string:
                yield number, token.string
            previous = number


def test_comments_begin_with_a_noun() -> None:
    found = [
        f"{name}:{number}: {comment}"
        for name, text in texts(*CODE, "docs/*.py", "examples/*.py", "tools/*.py")
        for number, comment in comments(text)
        if CONTINUES.match(comment)
    ]
    assert found == [], "begin with the noun that the comment explains"


@pytest.mark.parametrize(
    ("patterns", "pattern", "advice"),
    [
        ((*CODE, "tests/*.py", "*.md"), WORD, "name the user, the task or the process that is meant"),
        ((*CODE, "tests/*.py"), PHRASES, "see the examples"),
        (CODE, FIRST_WORD, "begin with Return, Compute, Parse, Raise, Whether or a noun"),
    ],
    ids=["words", "phrases", "docstrings"],
)
def test_words_are_plain(patterns: tuple[str, ...], pattern: re.Pattern[str], advice: str) -> None:
    found = []
    for name, text in texts(*patterns):
        plain = text
        for words in ALLOWED:
            plain = plain.replace(words, "")
        found += [f"{name}:{plain.count(chr(10), 0, at.start()) + 1}: {at[0]}" for at in pattern.finditer(plain)]
    assert found == [], f"{advice}; see CONTRIBUTING.md"
