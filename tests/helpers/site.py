"""The documentation as a site: build it, and look into what was built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.helpers.pages import ROOT

_INSTALL: Final = "pip install '.[docs]'"
# What a browser fetches by itself; where an <a> leads is up to the reader
_FETCHED: Final = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
_OF_STYLES: Final = re.compile(r"url\(\s*[\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")


def lacking() -> str:
    """Return why no site can be built here and what would help; nothing if it can."""
    return "" if find_spec("mkdocs") and find_spec("material") else f"no MkDocs with its theme here; {_INSTALL}"


def build(where: Path) -> None:
    """Build the site there as ``make docs`` does; any warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(where)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("INFO ")] == []


@dataclass
class Built(HTMLParser):
    """One page of the site: what it fetches, where it leads, what can be linked to, and its words."""

    path: Path
    fetched: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._inside: list[str] = []
        self.feed(self.path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        for name in _FETCHED.get(tag, ()):
            if given.get(name):
                self.fetched += (
                    [part.split()[0] for part in given[name].split(",")] if name == "srcset" else [given[name]]
                )
        self.fetched += styled(given.get("style", ""))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """See the end of what holds no words."""
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.words.append(data)
        elif self._inside[-1] == "style":
            self.fetched += styled(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def styled(css: str) -> list[str]:
    """Return what a style sheet fetches; what it holds itself (data:) is not fetched."""
    found = [first or second for first, second in _OF_STYLES.findall(css)]
    return [address for address in found if not address.startswith("data:")]
