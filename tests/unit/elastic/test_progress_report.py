"""The training side's progress lines."""

import json
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bftrain_elastic import Reporter, finish

REPORT_FILE, SIZE = "BFTRAIN_REPORT_FILE", "BFTRAIN_SIZE"  # as docs/how-to/elastic.md has them
SCRIPT = "from bftrain_elastic import report; [report(samples=32, loss=1 / step) for step in range(1, 4)]"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("BFTRAIN_")}
    return subprocess.run(
        [sys.executable, "-c", script], env=plain | environment, capture_output=True, text=True, check=True, timeout=60
    )


def test_a_line_tells_when_how_far_on_how_many_nodes(tmp_path: Path) -> None:
    before = time.time()
    reporter = Reporter(str(tmp_path / "lines"), size=4)
    reporter(samples=32, loss=0.5)
    reporter(samples=16)
    reporter.close()
    first, second = lines(tmp_path / "lines")
    assert before <= first.pop("t") <= time.time()  # type: ignore[operator]  # JSON
    assert first == {"step": 1, "size": 4, "samples": 32, "loss": 0.5}
    assert (second["step"], second["samples"], second["loss"]) == (2, 16, None)


def test_a_script_may_count_its_steps_itself_and_counting_goes_on_from_there(tmp_path: Path) -> None:
    reporter = Reporter(str(tmp_path / "lines"), size=1)
    reporter(samples=1, step=100)
    reporter(samples=1)
    reporter.close()
    assert [line["step"] for line in lines(tmp_path / "lines")] == [100, 101]


def test_only_the_owner_can_read_the_lines(tmp_path: Path) -> None:
    Reporter(str(tmp_path / "lines"), size=1).close()
    assert stat.S_IMODE((tmp_path / "lines").stat().st_mode) == 0o600


def test_under_a_manager_a_script_reports_where_the_environment_says(tmp_path: Path) -> None:
    run(SCRIPT, **{REPORT_FILE: str(tmp_path / "lines"), SIZE: "3"})
    assert [(line["step"], line["size"]) for line in lines(tmp_path / "lines")] == [(1, 3), (2, 3), (3, 3)]


def test_alone_a_script_reports_nothing_and_runs_all_the_same(tmp_path: Path) -> None:
    done = run(f"import os; os.chdir({str(tmp_path)!r}); {SCRIPT}")
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("", "", [])


def test_lines_of_several_workers_do_not_mix(tmp_path: Path) -> None:
    script = "from bftrain_elastic import report; [report(samples=k) for k in range(500)]"
    environment = os.environ | {REPORT_FILE: str(tmp_path / "lines")}
    workers = [subprocess.Popen([sys.executable, "-c", script], env=environment) for _ in range(3)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert sorted(line["samples"] for line in lines(tmp_path / "lines")) == sorted(list(range(500)) * 3)  # type: ignore[type-var]  # JSON


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({REPORT_FILE: "/dev/full"}, "No space left on device"),
        ({REPORT_FILE: "/no/such/folder/lines"}, "No such file or directory"),
        ({REPORT_FILE: "/dev/null", SIZE: "many"}, "invalid literal"),
    ],
)
def test_training_goes_on_when_nothing_can_be_written(environment: dict[str, str], words: str) -> None:
    done = run(f"{SCRIPT}; print('trained')", **environment)
    assert done.stdout == "trained\n"
    assert "this step's progress is not reported" in done.stderr
    assert words in done.stderr


def test_a_program_says_that_it_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BFTRAIN_SOCKET", raising=False)
    finish()  # without an agent nothing happens
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(tmp_path / "agent"))
        door.listen()
        monkeypatch.setenv("BFTRAIN_SOCKET", str(tmp_path / "agent"))
        monkeypatch.setenv("BFTRAIN_WORKER", "t/n1/0/1-1")
        finish()
        guest, _ = door.accept()
        with guest:
            assert json.loads(guest.recv(1000)) == {"type": "hello", "worker": "t/n1/0/1-1"}
            assert json.loads(guest.recv(1000)) == {"type": "finished"}
            assert guest.recv(1000) == b""
    with pytest.warns(RuntimeWarning, match="the end of the work could not be reported"):
        finish()
