"""The training side's progress lines."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bftrain_elastic import finish

SCRIPT = "from bftrain_elastic import report; [report(samples=32, loss=1 / step) for step in range(1, 4)]"


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("BFTRAIN_")}
    return subprocess.run(
        [sys.executable, "-c", script], env=plain | environment, capture_output=True, text=True, check=True, timeout=60
    )


def test_alone_a_script_reports_nothing_and_runs_all_the_same(tmp_path: Path) -> None:
    done = run(f"import os; os.chdir({str(tmp_path)!r}); {SCRIPT}")
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("", "", [])


def test_listeners_get_the_metrics_of_each_step() -> None:
    listening = "from bftrain_elastic import on_report; on_report(lambda step, metrics: print(step, metrics))"
    assert run(f"{listening}; {SCRIPT}").stdout.splitlines() == [
        "1 {'samples': 32.0, 'nodes': 1.0, 'loss': 1.0}",
        "2 {'samples': 32.0, 'nodes': 1.0, 'loss': 0.5}",
        "3 {'samples': 32.0, 'nodes': 1.0, 'loss': 0.3333333333333333}",
    ]
    assert run(f"{listening}; {SCRIPT}", RANK="1").stdout == ""


def test_an_error_of_a_listener_stops_the_training() -> None:
    broken = "from bftrain_elastic import on_report; on_report(lambda step, metrics: int('broken'))"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(f"{broken}; {SCRIPT}")
    assert "ValueError: invalid literal for int() with base 10: 'broken'" in caught.value.stderr


def test_training_goes_on_when_nothing_can_be_reported() -> None:
    done = run(f"{SCRIPT}; print('trained')", BFTRAIN_SOCKET="no-such-agent")
    assert done.stdout == "trained\n"
    assert "this step's progress is not reported" in done.stderr
    assert "Connection refused" in done.stderr


def test_a_program_says_that_it_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BFTRAIN_SOCKET", raising=False)
    finish()  # without an agent nothing happens
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(f"\0{tmp_path}")
        door.listen()
        monkeypatch.setenv("BFTRAIN_SOCKET", str(tmp_path))
        monkeypatch.setenv("BFTRAIN_WORKER", "t/n1/0/1-1")
        finish()
        guest, _ = door.accept()
        with guest:
            assert json.loads(guest.recv(1000)) == {"type": "hello", "worker": "t/n1/0/1-1"}
            assert json.loads(guest.recv(1000)) == {"type": "finished"}
            assert guest.recv(1000) == b""
    with pytest.warns(RuntimeWarning, match="completion could not be reported"):
        finish()
