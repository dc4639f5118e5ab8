"""Node sets: what they name, in which order, what is none, and names folded into them."""

from __future__ import annotations

import time

import pytest

from bftrain.nodesets import LONGEST_NAME, MOST_NODES, expand, fold, natural_order


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("nid0001", ["nid0001"]),
        ("nid[0001-0004,7]", ["nid0001", "nid0002", "nid0003", "nid0004", "nid7"]),
        ("a[01-03,07]-b[1-2]", [f"a{a}-b{b}" for a in ("01", "02", "03", "07") for b in (1, 2)]),
        ("b,a,b", ["b", "a", "b"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("n[3]", ["n3"]),
        ("[1-2]", ["1", "2"]),
        ("n[1-2]-ib,login.site.org", ["n1-ib", "n2-ib", "login.site.org"]),
        (",a,,b,", ["a", "b"]),
        ("n[1-9/4]", ["n1", "n5", "n9"]),
        ("r[1-2]c[0-1]n1", ["r1c0n1", "r1c1n1", "r2c0n1", "r2c1n1"]),
        ("n[1-1000000]", [f"n{number}" for number in range(1, 1_000_001)]),
    ],
)
def test_what_a_set_names(text: str, names: list[str]) -> None:
    assert expand(text) == names


HOSTILE = [
    *[
        "",
        ",",
        "n[",
        "n]",
        "n[]",
        "n[1-]",
        "n[-1]",
        "n[a-c]",
        "n[2-1]",
        "n[1-2",
        "n1-2]",
        "n[[1-2]]",
        "n[1]]",
        "n[1-2-3]",
    ],
    *[
        "n[1,]",
        "n[,1]",
        "n 1",
        "a|b",
        "@group",
        "a!b",
        "n*",
        "a&b",
        "n\x00",
        "n1\n",
        "a/b",
        "n[1-2]!n1",
        "\N{BALLOT BOX}",
        "n[\N{SUPERSCRIPT TWO}]",
    ],
    f"n[1-{MOST_NODES + 1}]",
    "n[1-1000000000]",
    "n[0-999999,0-999999]",
    "n[" + ",".join(["0-999999"] * 50_000) + "]",
    "n[1-1000]x[1-1000]y[1-1000]",
    "a[1-99999]b[1-99999]",
    "n[1-1000000000]x[1-2]",
    "n[1-1000000000/1000000]",
    f"n[1-{'9' * 5000}]",
    f"n[{'9' * 5000}]",
    f"n[{'0' * 300}-1]",
    "x" * (LONGEST_NAME + 1),
    "x" * 100_000 + "[1-1000000]",
    "[" * 100_000,
    "a," * 100_000 + "[",
    "[1]" * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:24]))
def test_what_is_no_set_and_that_this_is_found_out_at_once(text: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(ValueError, match=r".+"):
        expand(text)
    assert time.perf_counter() - begin < 5


def test_a_long_list_without_brackets_takes_no_longer_than_it_is_long() -> None:
    begin = time.perf_counter()
    assert len(expand(",".join(f"nid{number:06d}" for number in range(100_000)))) == 100_000
    assert time.perf_counter() - begin < 5


def test_names_that_are_folded_can_be_read() -> None:
    names = ("nid0001", "nid0002", "gpu7")
    assert fold(names) == "gpu7,nid[0001-0002]"
    assert set(expand(fold(names))) == set(names)


def test_people_count_n2_before_n10() -> None:
    names = ["n10", "n2", "n02", "n1", "a", "n", "n2b10", "n2b9", f"n{'9' * 5000}", ""]
    assert sorted(names, key=natural_order) == [
        "",
        "a",
        "n",
        "n1",
        "n02",
        "n2",
        "n2b9",
        "n2b10",
        "n10",
        f"n{'9' * 5000}",
    ]
