"""Every block of code on every page is run, read or compared by a test, or says in its source why it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.pages import PAGES, ROOT, Block, page, shown_in
from tests.helpers.reading import ABOUT_PAGES, VERBS, Reader, undisclosed_needs, way


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_is_tried_or_says_why_not(path: Path) -> None:
    found = page(path)
    assert set(found.said) <= set(ABOUT_PAGES), "a comment that stands neither above a block nor is about the page"
    for before, block in zip([None, *found.blocks], found.blocks, strict=False):
        way(block, before)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_needs_nothing_that_it_does_not_say(path: Path) -> None:
    assert undisclosed_needs(page(path)) == []


NAMED = "This is `a.json`:\n\n<!-- file: a.json -->\n```json\n{}\n```\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NAMED, []),
        (NAMED.replace("`a.json`", "a file"), ["line 4 is the file a.json"]),
        (NAMED.replace("This is `a.json`:", "`a.json`\n\n```sh\ntrue\n```\n"), ["line 9 is the file a.json"]),
        ("<!-- file: a.toml -->\n```toml\n# a.toml: an example\n```\n", []),
        ("<!-- needs: torch -->\n", ["'torch' is needed"]),
        ("<!-- needs: torch -->\n\nIt takes PyTorch.\n", []),
        ("<!-- in: a checkout -->\n", ["'checkout|git clone' is needed"]),
        ("<!-- in: a checkout -->\n\nIn a checkout:\n", []),
    ],
)
def test_what_a_page_does_not_say_is_found(text: str, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    assert undisclosed_needs(page(path)) == expected


@pytest.mark.parametrize("verb", ["then", "shows"])
def test_what_is_typed_unseen_leaves_nothing_behind(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.helpers.pages.ROOT", tmp_path)
    folder, state = tmp_path / "folder", tmp_path / "state"
    folder.mkdir()
    state.mkdir()
    kind, shown = ("sh", "true") if verb == "then" else ("text", "made")
    path = tmp_path / "page.md"
    path.write_text(f"<!-- {verb}: touch made && ls -->\n```{kind}\n{shown}\n```\n\n```sh\npwd; touch seen\n```\n")
    Reader(page(path), folder, state).read()
    assert [made.name for made in folder.iterdir()] == ["seen"]


def test_nothing_is_typed_before_a_block_unseen() -> None:
    assert "first" not in VERBS


def test_the_guide_lists_all_comments_for_pages() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [verb for verb in (*VERBS, *ABOUT_PAGES) if f"`<!-- {verb}: " not in guide] == []


SH = Block("sh", "true\n", 1)
PYTHON = Block("python", "pass\n", 1)


@pytest.mark.parametrize(
    ("block", "before", "expected"),
    [
        (SH, None, "typed"),
        (PYTHON, None, "typed"),
        (Block("python", "", 2, (("file", "a.py"),)), None, "file"),
        (Block("toml", "", 2, (("file", "a.toml"),)), None, "file"),
        (Block("json", "", 2, (("read as", "events"),)), None, "read"),
        (Block("sh", "", 2, (("not run", "needs a whole cluster"),)), None, "not run"),
        (Block("text", "", 2), SH, "output"),
        (Block("text", "", 2, (("shows", "true"),)), None, "output"),
        (Block("text", "", 2, (("not compared", "a drawing, no output"),)), None, "not run"),
    ],
)
def test_what_is_done_with_a_block(block: Block, before: Block | None, expected: str) -> None:
    assert way(block, before) == expected


@pytest.mark.parametrize(
    ("block", "before"),
    [
        (Block("", "", 2), SH),
        (Block("console", "", 2), SH),
        (Block("toml", "", 2), None),
        (Block("json", "", 2), None),
        (Block("text", "", 2), None),
        (Block("text", "", 2), Block("sh", "", 1, (("not run", "needs a whole cluster"),))),
        (Block("text", "", 2), Block("python", "", 1, (("file", "a.py"),))),
        (Block("sh", "", 2, (("not run", ""),)), None),
        (Block("sh", "", 2, (("skip", "it is slow"),)), None),
        (Block("sh", "", 2, (("not run", "no"),)), None),
    ],
)
def test_a_block_of_which_nothing_is_known_is_found(block: Block, before: Block | None) -> None:
    with pytest.raises(AssertionError, match="line 2"):
        way(block, before)


def test_blocks_and_what_is_said_of_them_are_found(tmp_path: Path) -> None:
    text = (
        "<!-- needs: torch -->\n\n# A\n\n<!-- first: one -->\n<!-- first: two -->\n```sh\na\n\nb\n```\n\n- item\n\n"
        "  ```python\n  def f():\n      pass\n  ```\n"
    )
    path = tmp_path / "a.md"
    path.write_text(text)
    found = page(path)
    assert found.said == {"needs": "torch"}
    first, second = found.blocks
    assert (first.kind, first.text, first.line, first.all("first")) == ("sh", "a\n\nb\n", 7, ["one", "two"])
    assert (second.kind, second.text, second.said) == ("python", "def f():\n    pass\n", ())


@pytest.mark.parametrize(
    ("shown", "seen", "expected"),
    [
        ("a\nb\n", "x\na\nb\nc\n", True),
        ("a\n...\nc\n", "x\na\nb\nc\n", True),
        ("a  \n", "a\n", True),
        ("...\nc\n", "a\nc\n", True),
        ("a\n...\n", "a\nc\n", True),
        ("a\nc\n", "x\na\nb\nc\n", False),
        ("c\n...\na\n", "x\na\nb\nc\n", False),
        ("ab\n", "abc\n", False),
    ],
)
def test_what_is_shown_is_compared_line_by_line(shown: str, seen: str, *, expected: bool) -> None:
    assert shown_in(shown, seen) is expected
