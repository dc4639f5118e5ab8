"""Reference that is generated from code: the glossary, and parts of the pages on readers, formats and for programs.

``site_hooks.py`` hands them to MkDocs; the tests of links use them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bftrain.config import REPLAY, Settings
from bftrain.live.api.routes import described
from bftrain.values.options import Setting, settings_of
from bftrain_replay.simulation.replay_settings import ReplaySettings
from tools.glossary_page import glossary_page
from tools.readers_page import generated_part


def endpoints() -> str:
    """Return the table of the API's endpoints."""
    rows = (
        f"| {one.method} | `{one.path}` | {one.about}{' For operators.' if one.operators else ''} |"
        for one in described()
    )
    return "\n".join(("## Endpoints", "", "| | address | effect |", "|---|---|---|", *rows)) + "\n"


_ABOUT_SETTINGS: Final = """\
Each key has a command-line option that takes precedence: `horizon_s` is `--horizon`; `--shares` and `--topology` set
the tables. Unknown keys are rejected with a suggestion.
"""
_TABLES: Final = {
    "entities": "tables `[entities.NAME]`: `weight`, quota (`nodes`, `tasks`), `inside`; see "
    "[shares file](objectives.md#shares-file)",
    "prices": "table `[prices]`, such as `v100 = 2.5` (default: 1)",
    "racks": 'table `[racks]`, such as `r1 = "n[1-32]"`; `"*" = "1"` is `names:1`',
    f"[{REPLAY}]": "table with the settings that only replays have; other commands ignore it",
}


def settings() -> str:
    """Return the tables of the keys of `config.toml`, from the declarations of the settings."""
    general, all_settings = settings_of(Settings), settings_of(ReplaySettings)
    heading = ("| key | meaning | default |", "|---|---|---|")
    tables = (f"| `{name}` | {words} | |" for name, words in _TABLES.items())
    only = (setting for name, setting in all_settings.items() if name not in general)
    lines = ("## Settings as `.toml`", "", _ABOUT_SETTINGS, *heading, *map(_row, general.values()), *tables)
    return "\n".join((*lines, "", f"In the table `[{REPLAY}]`:", "", *heading, *map(_row, only))) + "\n"


def _row(setting: Setting) -> str:
    value = setting.option.default or ("" if setting.default is None else setting.default)
    return f"| `{setting.name}` | {setting.option.help} | {value} |"


# Pages without a file in docs/ -> their text
WHOLE: Final[Mapping[str, Callable[[], str]]] = {"reference/glossary.md": glossary_page}
# Pages in docs/ -> the text that follows the written one
APPENDED: Final[Mapping[str, Callable[[], str]]] = {
    "reference/formats.md": settings,
    "reference/programs.md": endpoints,
    "reference/readers.md": generated_part,
}
