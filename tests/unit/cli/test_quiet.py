"""With ``-q`` a command prints its result and nothing beside it: each command there is, in a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bftrain import generate_log, generate_mix, save_log, save_tasks
from bftrain.cli.main import COMMANDS
from bftrain_datasets.workloads.task_generators import TaskShape
from tests.helpers.in_process import CommandLine

EXAMPLES = Path(__file__).parents[3] / "examples"
PROBLEMS = EXAMPLES / "problems"
CURVE = "curve = { nodes = [1], rate = [1.0] }\nmax_nodes = 1\nwork_samples = 100\n"
INPUTS = {
    "gang.toml": f'[[task]]\nname = "a"\n{CURVE}',
    "one.toml": 'log = "log.npz"\ntasks = "tasks.toml"\nyardsticks = false\n[grid]\nmax_tasks = [1]\n',
    "jobs.swf": "; MaxProcs: 4\n" + "".join(f"{at} {at} 0 9 1 -1 -1 1 9 -1 1 1 1 -1 1 -1 -1 -1\n" for at in (1, 2)),
    "jobs.sacct": "JobID|Start|End|NNodes|NodeList|State\n1|0|3600|1|n1|COMPLETED\n2|7200|9000|2|n[1-2]|COMPLETED\n",
}
REPLAY = "replay log.npz --tasks tasks.toml --quick -o"
QUIET = {  # command -> what is run with -q, one after the other
    "doctor": ["doctor"],
    "import": ["import jobs.sacct -o other.npz", "import jobs.sacct --explain"],
    "check": ["check log.npz", "check jobs.sacct"],
    "generate": ["generate log -o made.npz --nodes 8 --days 0.1"],
    "tasks": ["tasks generate -o made.toml --count 3", "tasks profiles"],
    "inspect": ["inspect log.npz"],
    "assess": ["assess log.npz --quick --events 20"],
    "slice": ["slice log.npz -o part.npz --nodes n01,n02"],
    "anonymise": ["anonymise log.npz -o hidden.npz"],
    "schedule": ["schedule jobs.swf -o scheduled"],
    "replay": [
        f"{REPLAY} out",
        f"{REPLAY} out --overwrite",
        "replay log.npz --quick -o trials",
        "replay --cluster 4 --tasks gang.toml -o cluster",
        "replay --cluster 4 --tasks gang.toml --round 60 -o rounds",
        "replay --cluster 4 --tasks gang.toml --round 60",
    ],
    "explain": ["explain", f"{REPLAY} out", "explain rho --of out"],
    "report": [f"{REPLAY} out", "report out"],
    "compare": [f"{REPLAY} out --max-tasks 1 --nodes 0:1", "compare out out --label a --label b -o both.html"],
    "export": [f"{REPLAY} out", "export out -o trace.json"],
    "sweep": ["sweep one.toml --jobs 1 -o out", "sweep one.toml --jobs 1 -o out --dry-run"],
    "solve": [
        f"solve {PROBLEMS}/quickstart.json",
        f"solve {PROBLEMS}/quickstart.json --solver all",
        f"solve {PROBLEMS}/fair.json --solver highs",
        f"solve {PROBLEMS}/kinds.json",
        f"solve {PROBLEMS}/kinds.json --policy water-filling",
    ],
    "decide": [f"decide {EXAMPLES}/events.jsonl"],
    "live": ["live --example slurm"],
    "api": ["api --openapi", "api --grafana", "api --alerts"],
    "hooks": ["hooks show slurm --spool spool"],
    "journal": [
        f"decide {EXAMPLES}/events.jsonl --journal made.db",
        "journal show made.db",
        "journal plan made.db",
        "journal verify made.db",
        "replay --journal made.db --quick -o replayed",
        "journal repair made.db -o repaired.db",
        "journal export made.db -o exported.npz",
    ],
    "completion": ["completion bash"],
}
ASK_A_LIVE_RUN = {
    "submit": "submit gang.toml",
    **{name: name for name in ("queue", "status", "usage", "top", "page")},
    "edit": "edit a --weight 1",
    **{name: f"{name} a" for name in ("logs", "cancel", "pause", "resume", "drain")},
}
SLOW = {"demo", "train", "elastic"}  # test_replay_and_solve.py and tests/e2e/test_elastic_commands.py try them with -q


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with inputs of all commands, in which they run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    save_log(generate_log(12, 0.2, 3), tmp_path / "log.npz")
    save_tasks(generate_mix(3, 3, shape=TaskShape(max_nodes=6, work_samples=3e7)), tmp_path / "tasks.toml")
    for name, text in INPUTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("commands", QUIET.values(), ids=QUIET)
def test_a_quiet_command_prints_its_result_alone(bftrain: CommandLine, commands: list[str]) -> None:
    for command in commands:
        ended = bftrain(*command.split(), "-q")
        assert (ended.code, ended.err) == (0, ""), command
        assert ended.out, command


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("command", ASK_A_LIVE_RUN.values(), ids=ASK_A_LIVE_RUN)
def test_a_quiet_command_that_fails_says_why_and_nothing_else(bftrain: CommandLine, command: str) -> None:
    ended = bftrain(*command.split(), "--live", "nowhere.sock", "-q")
    assert (ended.code, ended.out) == (3 if command == "submit gang.toml" else 4, "")  # that task has no script
    assert ended.err.startswith("bftrain: ")
    assert ended.err.count("\n") == 1


def test_every_command_can_be_quiet_and_is_in_a_table() -> None:
    assert {*QUIET, *ASK_A_LIVE_RUN, *SLOW} == set(COMMANDS)
    for name, entry in COMMANDS.items():
        for command in leaves(entry.load(name)):
            assert any("--quiet" in option.opts for option in command.params), f"{name} {command.name}"


def leaves(command: click.Command) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from leaves(inner)
    else:
        yield command
