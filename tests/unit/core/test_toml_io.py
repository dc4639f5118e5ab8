"""TOML: what parsers, and the code behind them, cannot bear is refused as bad input, by every reader of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from bftrain import BadConfig, BadInput, Settings, config, generate_log, load_tasks, toml_io
from bftrain.config import line_of
from bftrain.live.model import site_config
from bftrain.values import wire
from bftrain_datasets.log.kind_files import with_kinds
from bftrain_replay.sweeping.executors.slurm_jobs import option
from bftrain_replay.sweeping.sweep_spec import read_spec

LONG = "seed = " + "1" * 5000  # more digits than int() takes
BEYOND = {
    "digits": (LONG, "a whole number has more than 64 bits"),
    "bits": (f"seed = {1 << 63}", "a whole number has more than 64 bits"),
    "lists": ("seed = " + "[" * 5000 + "]" * 5000, "tables or lists are nested too deep"),
    "keys": ("a." * 5000 + "seed = 1", "tables or lists are nested too deep"),  # which tomllib takes
}
READERS: dict[str, Callable[[Path], object]] = {
    "settings": lambda path: config.load(path, Settings),
    "shares": config.load_shares,
    "site": site_config.load,
    "tasks": load_tasks,
    "sweep": read_spec,
    "kinds": lambda path: with_kinds(generate_log(4, 0.1, 1), path),
}


@pytest.mark.parametrize("beyond", BEYOND)
@pytest.mark.parametrize("reader", READERS)
def test_numbers_and_depths_that_no_setting_has_are_bad_input(reader: str, beyond: str, tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    text, what = BEYOND[beyond]
    path.write_text(f"{text}\n")
    with pytest.raises(BadConfig) as refused:
        READERS[reader](path)
    assert str(refused.value).startswith(f"{path}: is not valid TOML: {what}")


def test_the_largest_numbers_of_toml_are_read() -> None:
    numbers = [-(1 << 63), (1 << 63) - 1]
    assert toml_io.parse(f"a = {numbers}", "f") == {"a": numbers}


def test_lines_are_found_beside_text_that_is_no_toml_of_its_own() -> None:
    assert line_of(f'a = """\n{LONG}\n"""\nb = 1\n', ("b",)) == 4


def test_an_option_for_dask_that_is_no_number_is_text() -> None:
    assert option(LONG.replace(" ", "")) == ("seed", "1" * 5000)


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000, '"\udcff"'])
def test_json_that_cannot_be_parsed_is_bad_input(text: str) -> None:
    with pytest.raises(BadInput, match="not valid JSON: "):
        wire.decode(text.encode(errors="surrogateescape"), object)


def test_values_read_back() -> None:
    given = {"a": True, "b c": [1.5, 2], "d": {"e": 'q"', "f": float("inf")}, "g": 1e22}
    assert (
        tomllib.loads("".join(f"{toml_io.key(name)} = {toml_io.value(part)}\n" for name, part in given.items()))
        == given
    )
    assert tomllib.loads(toml_io.table(given)) == given
