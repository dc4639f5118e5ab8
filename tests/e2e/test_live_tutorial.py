"""The tutorial on Slurm, typed word for word by a reader who has nothing but an account on a real Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import slurm
from tests.helpers.pages import ROOT, Page, page
from tests.helpers.reading import Watcher
from tests.helpers.slurm import Slurm, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.apart]

TUTORIAL = ROOT / "docs" / "tutorials" / "live-on-slurm.md"


@pytest.fixture(scope="module")
def found() -> Page:
    return page(TUTORIAL)


@pytest.fixture
def cluster(found: Page, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """Yield a Slurm with the partition that the page asks for, in the environment of the user."""
    (asked,) = [block.text.splitlines() for block in found.blocks if "PartitionName=" in block.text]
    partitions = [line for line in asked if line.startswith("PartitionName=")]
    assert set(asked) - set(partitions) <= set(slurm.SETTINGS.splitlines()), "the rest holds in the tests' Slurm"
    with Slurm(nodes=4, more_settings="\n".join([*partitions, ""])) as own:
        home = own.home / "jane"
        home.mkdir(mode=0o700)
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "BFTRAIN_LIVE", "BFTRAIN_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("PATH", own.env["PATH"])
        monkeypatch.setenv("SLURM_CONF", own.env["SLURM_CONF"])
        yield own


def test_the_tutorial_on_slurm_word_for_word(found: Page, cluster: Slurm, tmp_path: Path) -> None:
    folder = cluster.home / "jane" / "bftrain"
    folder.mkdir()  # train.py is saved there
    reader = Watcher(found, folder, tmp_path)
    try:
        reader.read()
    except AssertionError as error:
        error.add_note("\n".join([reader.seen, *(log.read_text() for log in folder.glob("live.log"))]))
        raise
    before, _, after = reader.seen.partition("submitted as #1")
    assert "JOBID" in before
    assert not re.search(r"\bpreempt bftrain-", before), "no pilot without a task"
    assert re.search(r"\bpreempt bftrain-", after), "squeue shows pilots"
    assert re.search(r"[1-9]\d* by preemption", reader.seen), "the main job took nodes"
    assert reader.seen.count("trained 600 steps") == 1
    assert "every decision the same" in reader.seen
    wait_until(lambda: cluster.idle() == set(cluster.nodes), "all nodes are idle", cluster.logs)
