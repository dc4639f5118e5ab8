"""Configuration files: what is wrong in them is named with its line, and what is written reads back."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from bftrain import BadConfig, BadInput, BadValue, BftrainError, Entity, Settings, TaskSpec, config


def refused(tmp_path: Path, text: str | bytes, kind: type[msgspec.Struct] = Settings) -> str:
    """Load a file with this content, and give what is said of it, with the file called F."""
    path = tmp_path / "bftrain.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadConfig) as error:
        config.load(path, kind)
    assert error.value.exit_code == 3
    return str(error.value).replace(str(path), "F")


def test_a_file_sets_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "bftrain.toml"
    path.write_text('solver = "highs"\nhorizon_s = 60\n')
    assert config.load(path, Settings) == Settings(solver="highs", horizon_s=60.0)


def test_options_win_over_the_file_and_the_file_over_what_is_built_in(tmp_path: Path) -> None:
    path = tmp_path / "bftrain.toml"
    path.write_text('solver = "highs"\nhorizon_s = 60\n')
    given = {"solver": "greedy", "max_tasks": None, "fallback": ""}
    assert config.merged(path, given, Settings) == Settings(solver="greedy", horizon_s=60.0, fallback="")
    assert config.merged(None, {}, Settings) == Settings()
    with pytest.raises(BadValue, match=r"^Settings\.horizon_s: must be above 0, not 0$"):
        config.merged(None, {"horizon_s": 0.0}, Settings)


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_key(tmp_path: Path) -> None:
    text = '# solvr = 1\nsolver = "exact"\n\nhorizon = 3\n'
    assert refused(tmp_path, text) == "F:4: unknown key 'horizon' (did you mean 'horizon_s'?)"


def test_the_settings_of_replays_are_a_table(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('solver = "exact"\nreplay = 3\n', encoding="utf-8")
    with pytest.raises(BadConfig, match=r"config.toml:2: replay must be a table, not 3"):
        config.load(path, Settings)


def test_an_unknown_table_is_named_with_its_line(tmp_path: Path) -> None:
    said = refused(tmp_path, 'solver = "exact"\n[xyz]\nx = 1\n')
    assert said.startswith("F:2: unknown key 'xyz' (known: admission, entities,")
    assert refused(tmp_path, '[[ "xyz" ]]\n').startswith("F:1: unknown key 'xyz'")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('horizon_s = "long"', "Settings.horizon_s: must be a number of seconds or 'auto', not 'long'"),
        (
            'horizon_s = "outo"',
            "Settings.horizon_s: must be a number of seconds or 'auto', not 'outo' (did you mean 'auto'?)",
        ),
        ("max_tasks = 1.5", "max_tasks: must be a whole number, not a number"),
        ("max_tasks = true", "max_tasks: must be a whole number, not true or false"),
        ("max_tasks = 0", "Settings.max_tasks: must be at least 1, not 0"),
        ("horizon_s = -1", "Settings.horizon_s: must be above 0, not -1"),
        ("horizon_s = nan", "Settings.horizon_s: must be a finite number, not nan"),
        ("horizon_s = inf", "Settings.horizon_s: must be a finite number, not inf"),
        ('solver = ""', "Settings.solver: must be printable text without surrounding space, not ''"),
        ("[solver]", "solver: must be text, not an object"),
        ("solver_gap = -1", "Settings.solver_gap: must be at least 0, not -1"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    assert refused(tmp_path, f"solver_threads = 1\n\n{line}\n") == f"F:3: {words}"


def test_a_wrong_value_deep_inside_is_named_with_the_line_of_its_key(tmp_path: Path) -> None:
    text = 'name = "a"\nmax_nodes = 2\ncurve.nodes = [1]\ncurve.rate = ["x"]\n'
    said = refused(tmp_path, text, TaskSpec)
    assert said == "F:3: curve.rate[0]: must be a number, not text"


def test_a_missing_key_has_no_line(tmp_path: Path) -> None:
    assert refused(tmp_path, 'name = "a"\n', TaskSpec) == "F: Object missing required field `curve`"


def test_what_is_no_toml_is_named_with_its_line(tmp_path: Path) -> None:
    assert refused(tmp_path, 'solver = "exact"\nhorizon_s 60\n').startswith("F:2: is not valid TOML: ")
    assert refused(tmp_path, 'solver = "exact').startswith("F: is not valid TOML: ")
    assert refused(tmp_path, "solver = 1\nsolver = 2\n").startswith("F:2: is not valid TOML: Cannot overwrite")


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert refused(tmp_path, b'solver = "\xff"\n').startswith("F: cannot be read: 'utf-8' codec can't decode")
    with pytest.raises(BadConfig, match=r"cannot be read: .*No such file"):
        config.load(tmp_path / "none.toml", Settings)
    with pytest.raises(BadConfig, match=r"cannot be read: .*Is a directory"):
        config.load(tmp_path, Settings)


def test_settings_written_as_toml_read_back() -> None:
    settings = Settings(solver="mein löser", fallback="", horizon_s=1e-7, max_tasks=7, objective='q"u\\o')
    text = config.dump(settings)
    assert text.splitlines()[:3] == ['solver = "mein löser"', 'fallback = ""', 'objective = "q\\"u\\\\o"']
    assert config.from_mapping(tomllib.loads(text), Settings, where="t.toml") == settings


def test_settings_with_tables_read_back() -> None:
    settings = Settings(
        entities={"a b.c": Entity(weight=2, inside="fifo", nodes=16), "d": Entity(tasks=1)}, prices={"v100": 2.5}
    )
    text = config.dump(settings)
    assert text.endswith(
        '\n[entities."a b.c"]\nweight = 2.0\ninside = "fifo"\nnodes = 16\n'
        '\n[entities.d]\nweight = 1.0\ninside = "fair"\ntasks = 1\n\n[prices]\nv100 = 2.5\n'
    )
    assert config.from_mapping(tomllib.loads(text), Settings, where="t.toml") == settings


def test_without_the_source_there_is_no_line() -> None:
    with pytest.raises(BadInput, match=r"^here: unknown key 'x'"):
        config.from_mapping({"x": 1}, Settings, where="here")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shares.toml"
    path.write_text(text)
    return path


def test_users_have_a_weight_alone_or_a_table_and_kinds_a_price(tmp_path: Path) -> None:
    text = '[entities]\nann = 2\nbob = { weight = 0.5, inside = "fifo", nodes = 16, tasks = 4 }\n[prices]\nv100 = 2.5\n'
    found = config.load_shares(written(tmp_path, text))
    assert found == {
        "entities": {"ann": Entity(weight=2.0), "bob": Entity(weight=0.5, inside="fifo", nodes=16, tasks=4)},
        "prices": {"v100": 2.5},
    }


def test_a_table_that_is_not_there_leaves_the_settings_as_they_are(tmp_path: Path) -> None:
    assert set(config.load_shares(written(tmp_path, "[prices]\nv100 = 1\n"))) == {"prices"}
    assert config.load_shares(written(tmp_path, "")) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[entities]\nann = 0\n", ":2: entities.ann: must be above 0, not 0 (write NAME = 2, or NAME = { weight = 2, "),
        ("[entities]\nann = true\n", ":2: entities.ann: must be a weight or a table, not True (write NAME"),
        ("[entities]\nann = { weigth = 2 }\n", ":2: entities.ann: unknown key 'weigth' (did you mean 'weight'?)"),
        ("[entities]\nbob = 1\nann = { nodes = 0 }\n", ":3: entities.ann.nodes: must be at least 1, not 0 (write"),
        ("[entities.ann]\nnodes = 1\ntasks = 1.5\n", ":3: entities.ann.tasks: must be a whole number, not 1.5"),
        ("[entities]\nann = { inside = 'lifo' }\n", ":2: entities.ann.inside: must be one of fair, fifo, not 'lifo'"),
        ("[entities]\nann.weight = 'much'\n", ":2: entities.ann.weight: must be a finite number, not 'much'"),
        ("entities = 3\n", ":1: entities: must be a table, not 3 (write NAME = 2"),
        ("\n[users]\nann = 2\n", ":2: unknown key 'users' (known: entities, prices)"),
        ("[prices]\nk80 = 1\nv100 = -1\n", ":3: prices.v100: must be a number above 0, not -1 (write KIND = 2.5)"),
        ("[prices]\nv100 = 'dear'\n", ":2: prices.v100: must be a number above 0, not 'dear'"),
        ("[prices]\nv100 = true\n", ":2: prices.v100: must be a number above 0, not True"),
        ("[prices]\n'' = 1\n", "a kind must have a name (write KIND = 2.5)"),
        ("[entities\n", ":1: is not valid TOML"),
    ],
)
def test_what_is_wrong_in_one_is_named_with_its_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BftrainError) as refused:
        config.load_shares(path)
    assert str(refused.value).startswith(str(path))
    assert words in str(refused.value)


def test_a_wrong_price_in_a_configuration_is_named_too() -> None:
    with pytest.raises(BftrainError, match=r"Settings\.prices: 'v100' must be a finite number above 0, not -1"):
        Settings(prices={"k80": 1.0, "v100": -1})
