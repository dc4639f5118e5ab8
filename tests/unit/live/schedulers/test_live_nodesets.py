"""Node sets of schedulers: read, folded, and no bombs."""

from __future__ import annotations

import pytest

from bftrain.nodesets import expand, fold


def test_sets_are_read() -> None:
    assert expand("nid0001") == ("nid0001",)
    assert expand("a1,b2.site.org") == ("a1", "b2.site.org")
    assert sorted(expand("nid[0001-0003,0007],gpu[1-2]")) == [
        "gpu1",
        "gpu2",
        "nid0001",
        "nid0002",
        "nid0003",
        "nid0007",
    ]
    assert len(expand("r[1-4]c[1-12]n[0-9]")) == 480
    assert len(expand("nid[00001-04608]")) == 4608


def test_what_is_folded_can_be_read() -> None:
    names = ("nid0001", "nid0002", "gpu7")
    assert fold(names) == "gpu7,nid[0001-0002]"
    assert set(expand(fold(names))) == set(names)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,,b",
        "a b",
        "a/b",
        "n[1-",
        "n[1-]",
        "n[a-b]",
        "n[1-100001]",
        "n[1-9999999999]",
        "a[1-99999]b[1-99999]",
        "@all",
        "n[1-2]!n1",
        "é",
        "n1\n",
        "*",
        "a" * 300,
    ],
)
def test_what_is_none_or_too_large_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match="node set"):
        expand(text)
