"""A prefork server that cannot start, as while bftrain is replaced on its node: its agent retries ever more slowly."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.slurm import wait_until

# Stands for the Python that prefork servers are started with; counts its starts, and fails like one of another version
BROKEN = """#!/bin/sh
echo started >> "$STARTS"
exit 2
"""
AGENT = """
import sys
sys.executable = sys.argv.pop(1)
from bftrain_elastic.agent.agent import main
sys.exit(main())
"""


def test_an_agent_waits_longer_each_time_before_it_starts_another(tmp_path: Path) -> None:
    broken, secret, starts = tmp_path / "python", tmp_path / "secret", tmp_path / "starts"
    broken.write_text(BROKEN)
    broken.chmod(0o700)
    secret.touch(0o600)
    secret.write_text("0" * 64)
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, broken, "--manager", "127.0.0.1:9", "--secret", secret, "--node", "n1"],
        env=os.environ | {"STARTS": str(starts)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: starts.exists() and len(starts.read_text().split()) >= 3, "a third prefork server")
        began = time.monotonic()
        time.sleep(3.0)
        passed_s = time.monotonic() - began
        # 0.2, 0.4, 0.8, 1.6, ... s apart, looked at once a second: fewer than one a second
        assert len(starts.read_text().split()) - 3 <= passed_s
    finally:
        agent.terminate()
        said = agent.communicate()[1]
    assert "its prefork server ended before it was ready; another one is started soon" in said
