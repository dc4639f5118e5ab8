"""The pages on commands say what the commands say of themselves: every command, every option, its default, its help."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from bftrain import BftrainError
from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.main import COMMANDS, main
from tests.helpers.every_command import every_command, only_a_group
from tests.helpers.pages import ROOT
from tools.command_pages import FOLDER, command_pages

PAGES = command_pages()


TREE = dict(every_command())
every = pytest.mark.parametrize("path", TREE, ids=" ".join)


def page_of(path: tuple[str, ...]) -> str:
    """Return the part of a page that is about this command alone."""
    after = re.split(rf"^#+ bftrain {' '.join(path)}$", PAGES[f"{path[0]}.md"], flags=re.MULTILINE)
    assert len(after) == 2, "each command has one heading"
    return re.split(r"^#+ bftrain ", after[1], flags=re.MULTILINE)[0]


def rows(page: str) -> dict[str, tuple[str, str]]:
    """Return option -> what it does and its default, as a reader sees them."""
    found = re.findall(r"^\| `(-[^`]*)` \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    assert len({names for names, _, _ in found}) == len(found), "an option is listed twice"
    return {names: (plain(words), plain(default)) for names, words, default in found}


def plain(text: str) -> str:
    return re.sub(r"\\(.)|`", r"\1", re.sub(r"\[(.*?)\]\(\.\./\1\.md\)", r"docs/\1.md", text))


def help_of(path: tuple[str, ...]) -> str:
    """Return what ``bftrain ... --help`` prints, in long lines."""
    done = CliRunner().invoke(main, [*path, "--help"], prog_name="bftrain", terminal_width=2000, max_content_width=2000)
    assert done.exit_code == 0
    return done.output


def test_every_command_has_its_page() -> None:
    assert set(PAGES) == {"index.md", *(f"{name}.md" for name in COMMANDS)}
    assert len(TREE) > len(COMMANDS)
    for name, entry in COMMANDS.items():
        assert f"| [`bftrain {name}`]({name}.md) | {entry.about} |" in PAGES["index.md"]


@every
def test_every_option_is_documented_with_its_help_and_default(path: tuple[str, ...]) -> None:
    sections = dict(re.findall(r"^(\S.*):\n((?:  .*\n)+)", help_of(path), re.MULTILINE))
    headings = [title for title in sections if title not in {"Commands", "Example", "Examples"}]
    options = "".join(sections[title] for title in headings)
    lines = re.sub(r"\n {3,}", "   ", options).splitlines()  # a long name has a line of its own
    said = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines)
    documented = rows(page_of(path))
    if only_a_group(TREE[path]):
        assert set(said) == {"-h, --help"}
        said, headings = {}, []
    assert set(documented) == set(said)
    assert re.findall(r"^##+ (.*)$", page_of(path), re.MULTILINE) == headings
    for names, words in said.items():
        text, default = documented[names]
        brackets = " ".join(re.findall(r" +\[([^][]*)\]\.?(?=$|  \[)", words))
        assert words.startswith(text.rstrip(".")), names
        assert re.findall(r"[^\s,;]+", default) == [
            word for word in re.findall(r"[^\s,;]+", brackets) if word != "default:"
        ], names


@every
def test_usage_help_and_epilog_are_documented_whole(path: tuple[str, ...]) -> None:
    command, page = TREE[path], plain(page_of(path))
    usage = help_of(path).partition("\n")[0].removeprefix("Usage: ")
    assert f"```text\n{usage}\n```".replace("`", "") in page
    for text in (command.help, command.epilog):
        for paragraph in re.split(r"\n\s*\n", text or ""):
            assert " ".join(paragraph.split()) in page
    if isinstance(command, DocumentedCommand):
        assert f"sh\n{command.example}\n" in page


def test_an_option_with_a_default_of_its_own_shows_it() -> None:
    assert rows(page_of(("replay",)))["--horizon DURATION|AUTO"] == (
        "Seconds ahead for which speed counts; auto: fitted to costs and to how long nodes stay.",
        "auto",
    )
    assert rows(page_of(("tasks", "generate")))["--count INTEGER RANGE"] == ("Number of tasks.", "100, x>=1")
    assert rows(page_of(("schedule",)))["-o, --output DIR"][1] == "required"


def test_every_exit_code_is_documented() -> None:
    def kinds(of: type[BftrainError]) -> Iterator[type[BftrainError]]:
        yield of
        for kind in of.__subclasses__():
            yield from kinds(kind)

    documented = set(map(int, re.findall(r"^\| (\d+) \|", PAGES["index.md"], re.MULTILINE)))
    assert documented == {0, *(kind.exit_code for kind in kinds(BftrainError))}


def test_their_folder_is_in_the_navigation() -> None:
    assert f"- Commands: {FOLDER}/\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
