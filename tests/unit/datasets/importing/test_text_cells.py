"""GPUs and cores as Slurm writes them into the columns of sacct, held against a plain loop."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bftrain import BadInput
from tests.helpers.records import imported
from tests.helpers.samples import DAY
from tests.helpers.slot_loops import Stay, idle_slot_s

HEADER_OF_UNITS = "JobID|Start|End|NNodes|NodeList|State|AllocTRES|NCPUS"


def test_idle_gpus_and_cores_of_a_dump_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    chance = random.Random(5)  # noqa: S311 - the same jobs every time
    rows, gpus, cores = [], list[Stay](), list[Stay]()
    for job in range(300):
        start = DAY + 60 * chance.randrange(500)
        end = start + 60 * chance.randrange(1, 90)
        first, count, each = chance.randrange(1, 9), chance.choice((1, 1, 1, 2)), chance.choice((0, 1, 2, 4))
        names = [f"g{number}" for number in range(first, first + count)]
        typed = chance.choice(("gres/gpu={0},", "gres/gpu:a100={0},gres/gpu={0},", "gres/gpu:v100={0},"))
        tres = f"billing=9,cpu={8 * count}," + (typed.format(each * count) if each else "") + f"mem=9G,node={count}"
        nodes = f"g[{first}-{first + count - 1}]" if count > 1 else f"g{first}"
        rows.append(f"{job}|{start}|{end}|{count}|{nodes}|COMPLETED|{tres}|{8 * count}")
        gpus.append((start, end, dict.fromkeys(names, each)))
        cores.append((start, end, dict.fromkeys(names, 8)))
    text = "\n".join([HEADER_OF_UNITS, *rows])
    window = (float(DAY), DAY + 60.0 * 600)
    names = tuple(f"g{number}" for number in range(1, 10))
    found = imported(tmp_path, text, unit="gpu", node_units=4, nodes=names, window=window)
    assert found.log.idle_node_s == idle_slot_s(gpus, dict.fromkeys(names, 4), *window)
    assert found.log.unit == "gpu"
    assert found.rows.aside == {"no_units": sum(not any(stay[2].values()) for stay in gpus)}
    found = imported(tmp_path, text.replace("cpu=", "xcpu="), unit="core", node_units=32, nodes=names, window=window)
    assert found.log.idle_node_s == idle_slot_s(cores, dict.fromkeys(names, 32), *window)
    whole = imported(tmp_path, text, nodes=names, window=window)
    assert (whole.log.unit, whole.log.node_names) == ("node", names)


def test_a_dump_that_tells_no_gpus_says_what_to_ask_for(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no column has the GPUs of a job.*AllocTRES"):
        imported(tmp_path, f"JobID|Start|End|NodeList\n1|{DAY}|{DAY + 9}|n1\n", unit="gpu")
    with pytest.raises(BadInput, match=r"reads no GPUs of jobs out of oar.*sacct"):
        imported(tmp_path, "x", unit="gpu", format="oar")
