"""``bftrain edit``: what is changed, in words, and wrong input."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import submit
from tests.helpers.live_thread import live_thread


def test_a_waiting_task_is_changed_on_the_command_line_and_wrong_input_is_refused(
    tmp_path: Path, bftrain: CommandLine
) -> None:
    with live_thread(tmp_path) as run:
        run.do(lambda inside: submit(inside.service, "cnn"))
        at = ("--live", run.socket)
        done = bftrain("edit", "cnn", "--nodes", "2:16", "--weight", "0.5", "--deadline", "2050-01-31T18:00", *at)
        assert done.out == "cnn: 2 to 16 nodes, weight 0.5, due at 2050-01-31 18:00\n"
        gone = bftrain("edit", "cnn", "--deadline", "none", "--campaign", "hpo", "--json", *at)
        assert json.loads(gone.out)["deadline_s"] is None
        assert bftrain("edit", "cnn", "--name", "vgg", *at).out.startswith("vgg: 2 to 16 nodes, ")
        assert bftrain("status", "vgg", *at).code == 0
        bftrain("edit", "vgg", "--name", "cnn", *at)
        for words, code, message in (
            (("cnn",), 2, "nothing is to be changed"),
            (("cnn", "--nodes", "2:3", "--max-nodes", "4"), 2, "cannot be used with"),
            (("cnn", "--nodes", "many"), 3, "is not MIN:MAX"),
            (("cnn", "--nodes", "0:3"), 3, "min_nodes"),
            (("cnn", "--min-nodes", "17"), 3, "max_nodes"),
            (("cnn", "--deadline", "soon"), 2, "is not a time"),
            (("cnn", "--weight", "nan"), 3, "weight"),
            (("cnn", "--name", "a/b"), 3, "name: must be"),
            (("vgg", "--weight", "1"), 3, "no task is called 'vgg'"),
        ):
            refused = bftrain("edit", *words, *at)
            assert (refused.code, refused.out) == (code, ""), (words, refused)
            assert message in refused.err, (words, refused)
