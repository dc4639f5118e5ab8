"""Schemathesis asks the API for everything that its description allows, and for much that it does not."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

from bftrain.live.model.site_config import Api
from tests.helpers.live_inside import Inside, submit
from tests.helpers.live_thread import live_thread
from tests.helpers.program import bftrain

# What no JSON schema can say (nodes that rise, names of launchers, min_nodes up to max_nodes) is refused with 400
_NOT_CHECKED = "positive_data_acceptance"
_GOES_ON = "/v1/watch"
_PATIENCE_S = 300.0


def test_no_request_finds_a_fault_and_every_answer_is_as_described(tmp_path: Path) -> None:
    with live_thread(tmp_path, api=Api(tcp="127.0.0.1:0")) as run:
        run.do(lambda inside: inside.world.lend("n1", "n2"))
        run.do(lambda inside: submit(inside.service, "first"))
        (tmp_path / "schemathesis.toml").write_text(
            f'headers = {{ Authorization = "Bearer {run.token_file.read_text().strip()}" }}\n'
        )
        description = bftrain("live", "--example", "openapi")
        assert description.code == 0, description.err
        (tmp_path / "openapi.json").write_text(description.out)
        done = subprocess.run(
            [
                Path(sys.executable).with_name("schemathesis"),
                "run",
                "openapi.json",
                *("--url", run.http),
                *("--exclude-path", _GOES_ON),
                *("--exclude-checks", _NOT_CHECKED),
                *("--max-examples", "8"),
                "--generation-deterministic",
                "--continue-on-failure",
                "--no-color",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        operations = sum(len(methods) for methods in json.loads(description.out)["paths"].values())
        for count in (f"Selected: {operations - 1}/{operations}", f"Tested: {operations - 1}"):
            assert re.search(rf"{count}\b", done.stdout), done.stdout
        made = re.search(r"(\d+) generated", done.stdout)
        assert made is not None
        assert int(made[1]) > 80, done.stdout
        assert run.inside.daemon.state == "running"
        assert [remark.text for remark in run.inside.daemon.notices.latest if "internal error" in remark.text] == []
        after: Inside = run.inside
        assert run.do(lambda _: submit(after.service, "after")).user == pwd.getpwuid(os.getuid()).pw_name
