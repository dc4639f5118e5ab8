"""What ended a script is shown as if the script had been run alone."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from bftrain_elastic.agent.prefork_server import traceback_of_script


def shown(script: Path) -> str:
    try:
        runpy.run_path(str(script), run_name="__main__")
    except BaseException as error:  # noqa: BLE001 - the test looks at any error
        # The frame of this function stands for those that ran the script
        return traceback_of_script(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
    pytest.fail("it was to break")


@pytest.mark.parametrize(
    ("text", "last", "lines"),
    [
        ("import nosuchthing\n", "ModuleNotFoundError: No module named 'nosuchthing'", [1]),
        ("def x(:\n", "SyntaxError: invalid syntax", [1]),
        ("def f():\n    raise ValueError('odd')\nf()\n", "ValueError: odd", [2, 3]),
        (
            "from bftrain_elastic import State\n\nState(rank=1)\n",
            "State: the name 'rank' is taken (call it otherwise)",
            [3],
        ),
        ("try:\n    1 / 0\nexcept ArithmeticError as error:\n    raise KeyError from error\n", "KeyError", [2, 4]),
    ],
)
def test_only_the_scripts_own_lines_are_shown(tmp_path: Path, text: str, last: str, lines: list[int]) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    found = shown(script)
    assert found.rstrip().endswith(last)
    assert "runpy" not in found
    assert "bftrain_elastic/" not in found
    assert all(f'script.py", line {line}' in found for line in lines)


def test_what_breaks_inside_of_us_is_shown_whole(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from bftrain_elastic.worker.state_tree import _unfold\n_unfold(['tensor', 3], [])\n")
    assert "bftrain_elastic/worker/state_tree.py" in shown(script)
