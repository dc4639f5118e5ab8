"""The pages of the documentation as they are written: their blocks of code, their links, their headings.

A comment right above a block says what a test does with it. CONTRIBUTING.md lists what can stand there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.reference_pages import APPENDED, WHOLE

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = tuple(sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]))
LEFT_OUT: Final = "..."  # stands in an output for lines that are not shown

_FENCE: Final = re.compile(r"^(?P<indent> *)```(?P<kind>[^`\n]*)$")
_COMMENT: Final = re.compile(r"^ *<!-- *(?P<verb>[a-z ]+?)(?:: *(?P<words>.*?))? *-->$")
_CODE: Final = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`|<!--.*?-->", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_TARGET: Final = r"\((?P<target>[^()\s]*(?:\([^()\s]*\)[^()\s]*)?)(?: +\"[^\"]*\")?\)"
_PICTURE: Final = re.compile(rf"!\[(?P<words>[^][]*)\]{_TARGET}")
_LINK: Final = re.compile(rf"\[[^][]*\]{_TARGET}")
_REFERENCE: Final = re.compile(r"^\[[^]]+\]: +(\S+)$|<(https?://[^>\s]*)>|(?:href|src)=\"([^\"]*)\"", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: what language it is in, what it holds, where it begins, and what the comments above it say."""

    kind: str
    text: str
    line: int
    said: tuple[tuple[str, str], ...] = ()
    prose: str = ""  # what a reader sees between the block before and this one

    def all(self, verb: str) -> list[str]:
        return [words for found, words in self.said if found == verb]

    def one(self, verb: str) -> str | None:
        """Return what the comment of this kind says, if there is one."""
        found = self.all(verb)
        assert len(found) <= 1, f"line {self.line}: more than one '{verb}'"
        return found[0] if found else None


@dataclass(slots=True)
class Page:
    """One page."""

    path: Path
    text: str
    said: dict[str, str] = field(default_factory=dict)  # comments that stand by no block, about the page as a whole
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its path from the root."""
        return str(self.path.relative_to(ROOT))


def page(path: Path) -> Page:
    found = Page(path, path.read_text(encoding="utf-8"))
    lines = found.text.splitlines()
    said: list[tuple[str, str]] = []
    number = after = 0
    while number < len(lines):
        line = lines[number]
        if fence := _FENCE.match(line):
            end = next((at for at in range(number + 1, len(lines)) if lines[at].strip() == "```"), None)
            assert end is not None, f"{found.name}:{number + 1}: a block without an end"
            indent = len(fence["indent"])
            text = "".join(f"{inside[indent:]}\n" for inside in lines[number + 1 : end])
            seen = "\n".join(line for line in lines[after:number] if not _COMMENT.match(line))
            found.blocks.append(Block(fence["kind"].strip(), text, number + 1, tuple(said), seen))
            number, said, after = end, [], end + 1
        elif comment := _COMMENT.match(line):
            said.append((comment["verb"], comment["words"] or ""))
        else:
            found.said.update(said)
            said = []
        number += 1
    found.said.update(said)
    return found


def on_site(path: Path) -> bool:
    """Whether the project or its site has this file."""
    return path.is_relative_to(ROOT) and (path.is_file() or _name(path) in WHOLE)


def site_text(path: Path) -> str:
    """Return the text of a page on the site, with its generated part."""
    name = _name(path)
    if name in WHOLE:
        return WHOLE[name]()
    text = path.read_text(encoding="utf-8")
    return f"{text}\n{APPENDED[name]()}" if name in APPENDED else text


def _name(path: Path) -> str:
    return path.as_posix().removeprefix(f"{ROOT}/docs/")


def links(text: str) -> list[str]:
    """Return where a page's links and pictures lead; what stands in code is no link."""
    plain = _CODE.sub("", text)
    without = _PICTURE.sub(lambda picture: picture["words"], plain)
    targets = [match["target"] for match in (*_PICTURE.finditer(plain), *_LINK.finditer(without))]
    return targets + [next(filter(None, groups), "") for groups in _REFERENCE.findall(plain)]


def pictures_without_words(text: str) -> list[str]:
    """Return the pictures without a text alternative."""
    return [match["target"] for match in _PICTURE.finditer(_CODE.sub("", text)) if not match["words"].strip()]


def anchors(text: str) -> set[str]:
    """Return the names of a page's sections, where the site and the usual forges have the same one for it."""
    headings = _HEADING.findall(re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL))
    found: dict[str, int] = {}
    for heading in headings:
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        site = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())
        forge = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", words).lower())
        if site == forge:
            found[site] = found.get(site, 0) + 1
    return {name for name, times in found.items() if times == 1}


def shown_in(shown: str, seen: str) -> bool:
    """Whether all that a page shows was seen, in order, and without a gap where none is marked."""
    wanted_lines, lines = _lines(shown), _lines(seen)
    begin = 0
    for part in re.split(rf"^{re.escape(LEFT_OUT)}\n?", "\n".join(wanted_lines) + "\n", flags=re.MULTILINE):
        wanted = part.splitlines()
        places = (at for at in range(begin, len(lines)) if lines[at : at + len(wanted)] == wanted)
        place = next(places, None) if wanted else begin
        if place is None:
            return False
        begin = place + len(wanted)
    return True


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]
