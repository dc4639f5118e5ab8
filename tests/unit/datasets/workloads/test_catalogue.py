"""The catalogue of measured models: speeds of AdaptDL's sets and Gavel's tables equal those computed by hand."""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path
from statistics import mean

import pytest

from bftrain import BadInput, UnknownName
from bftrain.taskfiles.records import profiles
from bftrain_datasets.workloads.catalogue import CatalogueOptions, catalogue, chosen
from tests.helpers.site_data import site_data
from tests.helpers.workloads import table

HEADER = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
# 2 GPUs on one node and on two; a batch of 64 that only the smaller sizes have
SET = HEADER + "1,2,32,0.5,0.1\n1,2,64,0.8,0.1\n2,2,32,0.9,0.4\n2,4,32,0.64,0.2\n2,4,64,1.0,0.2\n3,6,32,0.75,0.3\n"


def saved(folder: Path, text: str, name: str = "adaptdl_toy_scalability.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_without_files_it_is_the_bundled_models() -> None:
    assert catalogue(()) == dict(profiles())


def test_speed_by_gpus_is_samples_of_a_step_over_its_time_on_the_fewest_nodes(tmp_path: Path) -> None:
    toy = catalogue([saved(tmp_path, SET)])["toy"]
    assert toy.curve.nodes == (2, 4, 6)
    assert toy.curve.rate == pytest.approx((2 * 32 / 0.5, 4 * 32 / 0.64, 6 * 32 / 0.75))
    assert toy.source == "adaptdl_toy_scalability.csv: sizes in GPUs, batch 32 per GPU"


def test_what_was_measured_twice_counts_by_its_mean(tmp_path: Path) -> None:
    toy = catalogue([saved(tmp_path, SET + "3,6,32,0.25,0.1\n")])["toy"]
    assert toy.curve.rate[-1] == pytest.approx(6 * 32 / 0.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "missing num_nodes, num_replicas, local_bsz, step_time"),
        (HEADER, "has no rows"),
        (HEADER + "1,2,32,soon,0\n", "soon"),
        (HEADER + "2,1,32,0.5,0\n", "an impossible count or time"),
        (HEADER + "1,1,32,0,0\n", "an impossible count or time"),
        (HEADER + "1,1,32,1,0\n1,2,64,1,0\n", "no batch size was measured at every GPU count"),
    ],
)
def test_a_set_that_cannot_be_used_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        catalogue([saved(tmp_path, text)])


def test_a_table_of_gavel_gives_the_models_of_one_kind(tmp_path: Path) -> None:
    path = table(tmp_path)
    found = catalogue([path], CatalogueOptions(node_kind="v100"))
    assert found
    assert all(each.source == f"{path.name}: v100, steps/s" for each in found.values())
    with pytest.raises(UnknownName, match="no kind of node is called 'v10'"):
        catalogue([path], CatalogueOptions(node_kind="v10"))


def test_a_name_stands_once_and_is_found_or_suggested(tmp_path: Path) -> None:
    path = saved(tmp_path, SET)
    with pytest.raises(BadInput, match="the model 'toy' is also in another file"):
        catalogue([path, path])
    known = catalogue(())
    assert chosen(known, "vgg16") is known["vgg16"]
    with pytest.raises(UnknownName, match="did you mean 'vgg16'"):
        chosen(known, "vgg61")


@pytest.mark.parametrize("name", ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"])
def test_the_published_sets_equal_a_plain_computation(name: str) -> None:
    path = site_data("profiles") / f"adaptdl_{name}_scalability.csv"
    with path.open(encoding="utf-8") as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    rows.sort(key=lambda row: (row["num_replicas"], row["num_nodes"]))
    of = {}
    for gpus, each in groupby(rows, key=lambda row: row["num_replicas"]):
        same = list(each)
        of[gpus] = [row for row in same if row["num_nodes"] == same[0]["num_nodes"]]
    batch = max(set.intersection(*({row["local_bsz"] for row in each} for each in of.values())))
    expected = {
        int(gpus): gpus * batch / mean(row["step_time"] for row in each if row["local_bsz"] == batch)
        for gpus, each in of.items()
    }
    curve = catalogue([path])[name].curve
    assert dict(zip(curve.nodes, curve.rate, strict=True)) == pytest.approx(expected)


def test_gavels_gangs_on_several_servers_are_spread() -> None:
    path = site_data("gavel") / "simulation_throughputs.json.gz"
    found = catalogue([path], CatalogueOptions(by_hosts=True))["ResNet-18 (batch size 16)"]
    assert found.spread is not None
    assert found.spread.speed(2, 2, found.curve.speed(2)) == pytest.approx(35.34, abs=0.005)  # and 100.14 on one
