"""A reader who types what a page shows, block by block, in a folder of their own, and looks at what comes out."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Final

from bftrain import Action, Event
from bftrain.registry import BUILT_IN
from bftrain.values import wire
from tests.helpers.pages import ROOT, Block, Page, shown_in
from tests.helpers.program import ANSI, shell_on_terminal

TYPED: Final = ("sh", "python")  # run as they stand, one after the other
KEPT: Final = ("python", "toml", "json", "csv")  # may be the content of a file instead
VERBS: Final = {
    "not run": "why a block is not run",
    "not compared": "why an output is not compared",
    "file": "the block is the content of this file",
    "read as": "the block is read as events, actions or entry points",
    "wait before": "what a test waits for before the block",
    "wait after": "what it waits for after the block",
    "then": "typed after the block in a copy of the folder, of which nothing is left",
    "shows": "the block is the output of this, typed in such a copy",
}
ABOUT_PAGES: Final = {
    "needs": "markers of the tests that can run this page",
    "in": "where the reader is, if not in an empty folder: a checkout, or a checkout with .venv activated",
}
CHECKOUT: Final = "a checkout"
_COMMENTS: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_WORDS: Final = 3  # what says less gives no reason


def way(block: Block, before: Block | None) -> str:
    """Return how a block is tested: not run, typed, output, file or read; raise AssertionError if it is not."""
    place = f"the block in line {block.line}"
    strange = {verb for verb, _ in block.said} - set(VERBS)
    assert not strange, f"{place}: what is '{strange}'? Known: {', '.join(VERBS)}"
    reason = block.one("not compared" if block.kind == "text" else "not run")
    if reason is not None:
        assert len(reason.split()) >= _WORDS, f"{place}: say why"
        return "not run"
    if block.kind == "text":
        shown = block.one("shows") is not None or (before is not None and _is_typed(before))
        assert shown, f"{place} is no output: say which command shows it, or why it is not compared"
        return "output"
    if block.one("file") is not None and block.kind in KEPT:
        return "file"
    if block.one("read as") is not None and block.kind in ("json", "toml"):
        return "read"
    assert block.kind in TYPED, f"{place} is {block.kind or 'in no language'}: say what a test does with it"
    return "typed"


def _is_typed(block: Block) -> bool:
    return block.kind in TYPED and block.one("file") is None and block.one("not run") is None


@dataclass(slots=True)
class Reader:
    """Someone with a page, in a ``folder`` where nothing was before; ``state`` is outside of it."""

    page: Page
    folder: Path
    state: Path
    found: bool = True  # whether the shell finds bftrain

    def read(self) -> None:
        """Try all blocks of the page in order."""
        place = self.page.said.get("in", "")
        assert place in ("", CHECKOUT, f"{CHECKOUT} with .venv activated"), f"{self.page.name}: where is {place}?"
        self.found = place != CHECKOUT
        assert not undisclosed_needs(self.page), undisclosed_needs(self.page)
        if place:
            copytree(ROOT / "examples", self.folder / "examples")
            (self.folder / ".venv").symlink_to(sys.prefix)
        before, seen = None, ""
        for block in self.page.blocks:
            self._wait(block, "wait before")
            seen = self._take(block, before, seen)
            for command in block.all("then"):
                self._type_aside(command, block)
            self._wait(block, "wait after")
            before = block

    def _take(self, block: Block, before: Block | None, seen: str) -> str:
        """Do what there is to do with a block, and give what is on the screen then."""
        match way(block, before):
            case "typed" if block.kind == "python":
                return self._type(f"python -W error - <<'END OF BLOCK'\n{block.text}END OF BLOCK", block)
            case "typed":
                return self._type(block.text, block)
            case "output":
                if command := block.one("shows"):
                    seen = self._type_aside(command, block)
                differs = f"shows\n{block.text}--- but seen was\n{seen}"
                assert shown_in(block.text, seen), self._at(block, differs)
            case "file":
                self._keep(block)
            case "read":
                read_as(block)
        return seen

    def _keep(self, block: Block) -> None:
        name = block.one("file") or ""
        assert Path(name).name == name, self._at(block, f"{name} is no name of a file")
        if block.kind == "toml":
            tomllib.loads(block.text)
        (self.folder / name).write_text(block.text, encoding="utf-8")

    def _type(self, lines: str, block: Block) -> str:
        """Type lines into the one shell that the reader has open."""
        shell = self.state / "shell"
        kept = f"export -p > '{shell}'; printf 'cd %q\\n' \"$PWD\" >> '{shell}'"
        back = f". '{shell}'\n" if shell.exists() else ""
        ended = shell_on_terminal(f"{back}{lines}\n{kept}", cwd=self.folder, found=self.found)
        assert ended.code == 0, self._at(block, f"{lines}\n--- ended with {ended.code}\n{ended.out}")
        return ANSI.sub("", ended.out)

    def _type_aside(self, lines: str, block: Block) -> str:
        """Type lines in a copy of the folder, which is then thrown away: no later block can need what they leave."""
        aside = self.state / "aside"
        copytree(self.folder, aside, symlinks=True)
        try:
            return self._type(f"cd '{aside}'\n{lines}\ncd '{self.folder}'", block)
        finally:
            rmtree(aside)

    def _wait(self, block: Block, verb: str) -> None:
        for command in block.all(verb):
            assert command.startswith("timeout "), self._at(block, f"waits without an end: {command}")
            self._type(command, block)

    def _at(self, block: Block, words: str) -> str:
        return f"{self.page.name}:{block.line}: {words}"


class Watcher(Reader):
    """A reader who remembers what was typed and seen."""

    def __init__(self, found: Page, folder: Path, state: Path) -> None:
        super().__init__(found, folder, state)
        self.seen = ""

    def _type(self, lines: str, block: Block) -> str:
        # People keep a terminal open; ours closes at once, perhaps before nohup has made what it starts deaf to that
        deaf = "until grep -q 'SigIgn:.*[13579bdf]$' /proc/$!/status; do sleep 0.05; done"
        said = super()._type(f"{lines}\n{deaf}" if re.search(r"^nohup .*&$", lines, re.MULTILINE) else lines, block)
        self.seen += f"$ {lines}\n{said}\n"
        return said


def section(found: Page, heading: str, moved: Callable[[str], str]) -> Page:
    """Return one section of the page, with its blocks ``moved`` to the folders, users and hosts of the test."""
    before, _, after = found.text.partition(f"\n## {heading}\n")
    first = before.count("\n")
    last = first + after.partition("\n## ")[0].count("\n") + 2
    blocks = [replace(block, text=moved(block.text)) for block in found.blocks if first < block.line <= last]
    return Page(found.path, found.text, found.said, blocks)


def undisclosed_needs(page: Page) -> list[str]:
    """Return what readers of a page need and cannot see, since it is in comments."""
    said = _COMMENTS.sub("", page.text)
    wanted = [re.compile("checkout|git clone")] if "in" in page.said else []
    wanted += [re.compile(name, re.IGNORECASE) for name in page.said.get("needs", "").split()]
    lacking = [f"'{words.pattern}' is needed" for words in wanted if not words.search(said)]
    files = ((block, name) for block in page.blocks for name in block.all("file"))
    return lacking + [f"line {block.line} is the file {name}" for block, name in files if not _is_named(name, block)]


def _is_named(name: str, block: Block) -> bool:
    """Return whether a reader learns which file the block is: by the words above it, or by a comment it begins with."""
    first, _, _ = block.text.partition("\n")
    return re.search(rf"[`/]{re.escape(name)}`", block.prose) is not None or (first.startswith("#") and name in first)


def read_as(block: Block) -> None:
    match block.one("read as"):
        case "events":
            for line in block.text.splitlines():
                wire.decode(line, Event, where=line)
        case "actions":
            for line in block.text.splitlines():
                wire.decode(line, Action, where=line)
        case "entry points":
            groups = tomllib.loads(block.text)["project"]["entry-points"]
            assert groups
            for group, targets in groups.items():
                assert group.removeprefix("bftrain.") in BUILT_IN, group
                assert all(":" in target or "." in target for target in targets.values()), group
        case other:
            raise AssertionError(f"no block is read as {other}")
