"""``--cluster``: what is wrong with it is said, and the order of the kinds is kept."""

from __future__ import annotations

import click
import pytest

from bftrain.values.curve import cluster_of
from bftrain_replay.commands.replay import ClusterType


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("v100=36,p100=36,k80=4", {"v100": 36, "p100": 36, "k80": 4}),
        (" A100 80GB = 2 , k80=1 ", {"A100 80GB": 2, "k80": 1}),
        ("128", {"": 128}),
    ],
)
def test_nodes_by_kind(text: str, means: dict[str, int]) -> None:
    found = cluster_of(text)
    assert dict(found) == means
    assert list(found) == list(means)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is not a number of nodes"),
        ("0", "0 nodes are none"),
        ("-3", "'-3' is not a number"),
        ("1.5", "'1.5' is not a number"),
        ("9999999", "9,999,999 nodes are more"),
        ("99999999999999999999", "'99999999999999999999' is not a number"),
        ("v100=", "'' is not a number of nodes of 'v100'"),
        ("v100=0", "0 nodes of 'v100' are none"),
        ("v100=1,v100=2", "'v100' comes twice"),
        ("v100=1,", "'' names no kind"),
        ("=3", "'=3' names no kind"),
        ("a=1000000,b=1000000", "2,000,000 nodes are more"),
    ],
)
def test_what_is_no_cluster_is_refused(text: str, says: str) -> None:
    with pytest.raises(click.BadParameter, match=says) as refused:
        ClusterType().convert(text, None, None)
    assert "write v100=36,p100=36,k80=36, or 128" in str(refused.value)
