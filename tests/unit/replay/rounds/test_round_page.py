"""The page of a run in rounds: what it tells, from tables of either form, and its pictures as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bftrain import BadInput, RoundSettings
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.rounds import round_folder, round_page
from bftrain_replay.rounds.simulation import simulate
from tests.helpers.round_cases import gang

SPECS = [gang(f"t{number}", 9000.0, 1 + number % 2, 100.0 * number, user=f"u{number % 2}") for number in range(8)]


def folder_of(tmp_path: Path, form: str = "csv", **settings: object) -> Path:
    given = RoundSettings(policy="las", round_s=60.0, **settings)  # type: ignore[arg-type]  # any field of it
    round_folder.write(simulate({"": 2}, SPECS, given), tmp_path, form=form)
    return tmp_path


def pictures(folder: Path) -> dict[str, ChartFigure]:
    return {figure.name: figure for figure in round_page.page(round_page.of_folder(folder)).figures}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_it_tells_how_long_tasks_took_and_who_held_the_nodes(tmp_path: Path, form: str) -> None:
    folder = folder_of(tmp_path, form)
    summary = json.loads((folder / "summary.json").read_text())
    drawn = round_page.page(round_page.of_folder(folder))
    assert f"{summary['completion_s']['mean'] / 3600:.3g} h" in drawn.lead
    assert drawn.warnings == []
    found = pictures(folder)
    assert set(found) == {"time", "nodes", "completion", "rho", "slowdown", "users"}
    assert (
        "u1 66.7 %" in found["users"].says
    )  # tasks of two nodes are u1's, and all have the same work and speed a gang
    assert "u0 33.3 %" in found["users"].says


def test_nodes_of_users_add_up_to_the_nodes_that_were_used(tmp_path: Path) -> None:
    material = round_page.of_folder(folder_of(tmp_path))
    of_users = sum((to_s - from_s) * nodes for from_s, to_s, _, nodes in material.users)
    assert of_users == pytest.approx(material.summary["used_node_h"] * 3600)
    found = {series.of: series for series in pictures(tmp_path)["users"].series}
    for user, series in found.items():
        spans = [*series.times_s[1:].tolist(), series.end_s]
        drawn = sum(
            count * (end - begin)
            for begin, end, count in zip(series.times_s.tolist(), spans, series.columns["nodes"].tolist(), strict=True)
        )
        held = sum((to_s - from_s) * nodes for from_s, to_s, whose, nodes in material.users if whose == user)
        assert drawn == pytest.approx(held, rel=1e-6)


def test_many_users_are_few_colours(tmp_path: Path) -> None:
    specs = [gang(f"t{number}", 900.0, 1, user=f"u{number:02}") for number in range(20)]
    round_folder.write(simulate({"": 2}, specs, RoundSettings(round_s=60.0)), tmp_path)
    series = pictures(tmp_path)["users"].series
    assert series[-1].of == "others"
    assert len(series) < 20


def test_a_user_called_others_is_none_of_the_others(tmp_path: Path) -> None:
    specs = [gang(f"o{number}", 900.0, 1, user="others") for number in range(2)]
    specs += [gang(f"t{number}", 900.0, 1, user=f"u{number:02}") for number in range(20)]
    round_folder.write(simulate({"": 2}, specs, RoundSettings(round_s=60.0)), tmp_path)
    shown = [series.of for series in pictures(tmp_path)["users"].series]
    assert (shown[0], shown[-1]) == ("user 'others'", "others")


def test_a_part_says_that_it_is_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, measure="2..3")
    drawn = round_page.page(round_page.of_folder(folder), "Ours")
    assert drawn.title == "Ours"
    assert any("2 of 8 tasks: 2..3" in text for text in drawn.warnings)
    assert "2 tasks finished" in str(drawn.sections[0].parts[0])


def test_a_run_without_users_or_ends_has_no_empty_pictures(tmp_path: Path) -> None:
    round_folder.write(simulate({"": 2}, [gang("t", None, 1)], RoundSettings(round_s=60.0, until_s=600.0)), tmp_path)
    assert set(pictures(tmp_path)) == {"time", "nodes"}


def test_the_page_lies_beside_the_other_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    round_page.write(folder)
    text = (folder / "report.html").read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "Time shared in rounds" in text


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no summary\.json"):
        round_page.of_folder(tmp_path)
    (tmp_path / "summary.json").write_text('{"format": "bftrain replay 1"}')
    with pytest.raises(BadInput, match="is of the format 'bftrain replay 1'"):
        round_page.of_folder(tmp_path)
