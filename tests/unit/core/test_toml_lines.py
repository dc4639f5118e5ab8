"""Where a key of a TOML file stands, however it is written."""

from __future__ import annotations

import pytest

from bftrain.toml_lines import line_of

TEXT = """# a site
name = "physics"
[entities]
ann = 2  # the head
"bob b." = { weight = 1,  nodes = 3 }
carl.weight = 2
[ entities . dora ]
weight = 2
nodes = [
  1,
]
[prices]
weight = 3
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("entities",), 3),
        (("entities", "ann"), 4),
        (("entities", "bob b.", "nodes"), 5),
        (("entities", "carl", "weight"), 6),
        (("entities", "dora"), 7),
        (("entities", "dora", "weight"), 8),
        (("entities", "dora", "nodes"), 7),  # it goes over several lines: the table is as near as can be told
        (("prices", "weight"), 13),
        (("entities", "emil"), 3),
        (("nothing",), 0),
        ((), 0),
    ],
)
def test_a_key_stands_on_its_line_or_in_its_table(path: tuple[str, ...], line: int) -> None:
    assert line_of(TEXT, path) == line
