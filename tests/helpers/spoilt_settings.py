"""Settings and logs spoilt at random, and commands that read them: these end in words, in time and in little memory."""

from __future__ import annotations

import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

from bftrain import (
    BftrainError,
    ImportOptions,
    ReplaySettings,
    RoundSettings,
    config,
    generate_log,
    generate_mix,
    save_log,
    save_tasks,
)
from bftrain.cli.main import exit_code, main
from bftrain.live.model import site_config
from bftrain_datasets.importing.pipeline import import_files
from bftrain_datasets.workloads.task_generators import TaskShape
from tests.helpers.samples import SAMPLES

MOST_BYTES: Final = 1 << 30
_PATIENCE_S: Final = 60.0  # of processor time; logs of 3,600 days take 2 s
_WAITING: Final = 10  # times as long by the clock, beside other programs
_INTERRUPTED: Final = 130

_NUMBERS: Final = (
    *("-1", "0", "1", "2", "1000", "3600.0", "0.5", "-0.0", "1e-9", "5e-324", "1e9", "1e15", "1e308", "1e400", "nan"),
    *("inf", "123456789", "0x7fffffff", "9223372036854775807", "-9223372036854775808", "9" * 400, "9" * 5000),
)
_TEXTS: Final = (
    *('""', '" "', r'"\u0000"', f'"{"x" * 5000}"', '"ü"', '"auto"', '"all"', '"nan"', '"1e999"', '"-1:5"', '"0:1e30"'),
    *('"n[1-999999999]"', '"n[1-2]x[1-999999]"', '"disk:1e-9"', '"a=9999999999"', '"nowhere.toml"', '"0"', '"1:2"'),
    *('"exact"', '"highs"', '"greedy"', '"speedup"', '"max-min"', '"published"', '"disk:60"', '"las"', '"0:99999999"'),
)
_OTHERS: Final = (
    *("true", "false", "[]", "{}", "[[1]]", "[1, 2]", "[1, 'a']", "[" * 5000 + "]" * 5000, "1979-05-27T07:32:00Z"),
    *("{ from = 1, to = 1e300, step = 1 }", "{ from = 0, to = 9999999999 }", "{ weight = 1e308 }"),
    *("{ nodes = [1, 9223372036854775807], rate = [1e308, 5e-324] }", "[0.1, 1e308, 2147483647]"),
)

_LINES_A_FILE: Final = 1000
_STRANGE: Final = tuple(
    text.strip('"').encode() for text in (*_NUMBERS, *_TEXTS, '"\0"', "n[1-", "n[9-1]", "Unknown", "|", ",", ";", "\r")
)

_SWEEP: Final = """title = "s"
log = "small"
tasks = "some"
yardsticks = false
plot = ["efficiency"]
[fixed]
min_interval_s = 0.0
[grid]
max_tasks = [1, 2]
tasks.count = { from = 1, to = 3 }
seed = { from = 1, to = 9, step = 4 }
[logs.small]
nodes = 4
days = 0.1
idle_share = 0.1
start_s = 0.0
[task_sets.some]
kind = "cluster"
count = 4
gangs = "1:0.7,2:0.3"
burst_share = 0.5
burst_size = 2
users = 2
deadlines = "1.5"
arrivals_per_hour = 4.0
"""
_SHARES: Final = '[entities.a]\nweight = 2\ninside = "fifo"\nnodes = 4\ntasks = 2\n[prices]\nv100 = 2.5\n'
_KINDS: Final = 'v100 = "n[1-4]"\nk80 = ["n5", "n[6-8]"]\n'
_SITE: Final = """name = "s"
state = "s"
folder = "f"
[scheduler]
name = "local"
slots = 2
[deciding]
max_tasks = 4
horizon_s = 60.0
[times]
stall_s = 100.0
[kinds]
v100 = "n[1-4]"
"""


def spoilt(text: str, random: Random) -> bytes:
    """Spoil a file in one or two places: other values mostly, and lines that lack or come twice, and bytes."""
    lines = [line.encode() for line in text.splitlines()]
    for _ in range(random.choice((1, 1, 2))):
        place, kind = random.randrange(len(lines)), random.randrange(16)
        line = lines[place]
        if kind == 0 and len(lines) > 1:
            del lines[place]
        elif kind == 1:
            lines.insert(random.randrange(len(lines)), line)
        elif kind == 2:
            at = random.randint(0, len(line))
            lines[place] = line[:at] + random.randbytes(2) + line[at + random.randint(0, 4) :]
        elif b"=" in line:
            key, _, value = line.partition(b"=")
            alike = _TEXTS if value.lstrip().startswith(b'"') else _NUMBERS
            lines[place] = key + b"= " + random.choice((*alike, *alike, *_OTHERS)).encode()
    return b"\n".join(lines) + b"\n"


class SettingsFiles:
    """Commands in a folder with small inputs, each with the file that is spoilt for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        save_log(generate_log(8, 0.05, 3), folder / "log.npz")
        tasks = generate_mix(3, 3, shape=TaskShape(max_nodes=4, work_samples=1e6))
        save_tasks(tasks, folder / "tasks.toml")
        problem = Path(__file__).parents[2] / "examples" / "problems" / "kinds.json"
        replay = ("replay", folder / "log.npz", "--tasks")
        rounds = ("replay", "--cluster", 4, "--tasks", folder / "tasks.toml")
        rest = ("-o", folder / "out", "--overwrite", "-q")
        self.commands: dict[str, tuple[str, tuple[object, ...]]] = {
            "settings": (
                config.dump(ReplaySettings(grow_cost_s=1.0, start_cost_s=2.0)),
                (*replay, folder / "tasks.toml", *rest, "--config"),
            ),
            "rounds": (
                config.dump(RoundSettings(round_s=600.0, gang="max")),
                (*rounds, "-o", folder / "rounds", *rest[2:], "--config"),
            ),
            "tasks": ((folder / "tasks.toml").read_text(), (replay[0], replay[1], *rest, "--tasks")),
            "kinds": (_KINDS, (*replay, folder / "tasks.toml", *rest, "--kinds")),
            "sweep": (_SWEEP, ("sweep", "-o", folder / "swept", "--dry-run", "-q")),
            "shares": (_SHARES, ("solve", problem, "--shares")),
            "site": (_SITE, ()),
        }

    def end(self, name: str, content: bytes) -> int:
        """Run the command with this content, and return its exit code."""
        path = self._folder / f"spoilt-{name}.toml"
        path.write_bytes(content)
        words = [*map(str, self.commands[name][1]), str(path)]
        return end_of(
            lambda: main.main(words, "bftrain", standalone_mode=False) if words[1:] else site_config.load(path)
        )


def end_of(call: Callable[[], object]) -> int:
    """Return the exit code of what a command does, within its time and memory."""
    try:
        with _bounded():
            call()
    except BaseException as error:  # noqa: BLE001 - as the command line does
        return exit_code(error)
    return 0


def check_settings(cases: int, seed: int) -> Counter[str]:
    """Run so many commands on spoilt files; return how many of each ended with which code."""
    found: Counter[str] = Counter()
    random = Random(seed)  # noqa: S311 - it spoils files, and keeps no secret
    with TemporaryDirectory() as folder:
        files = SettingsFiles(Path(folder))
        for number in range(cases):
            name = list(files.commands)[number % len(files.commands)]
            content = spoilt(files.commands[name][0], random)
            code = files.end(name, content)
            assert code not in {BftrainError.exit_code, _INTERRUPTED}, f"{name} ended with {code}, {content!r}"
            found[f"{name} {code}"] += 1
    return found


def check_log_lines(lines: int, seed: int) -> Counter[str]:
    """Import so many lines of all formats, a third of them spoilt; return how many files ended with which code."""
    found: Counter[str] = Counter()
    random = Random(seed)  # noqa: S311 - it spoils files, and keeps no secret
    samples = [sample for _, group in sorted(SAMPLES.items()) for sample in group]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        for _ in range(lines // _LINES_A_FILE):
            head, *rest = random.choice(samples).splitlines()
            content = [head, *random.choices(rest or [head], k=_LINES_A_FILE - 1)]
            for place in random.sample(range(_LINES_A_FILE), _LINES_A_FILE // 3):
                line = content[place]
                at = random.randint(0, len(line))
                strange = random.choice(_STRANGE) if random.random() < 0.5 else random.randbytes(2)
                content[place] = line[:at] + strange + line[at + random.randint(0, 8) :]
            path.write_bytes(b"\n".join(content))
            code = end_of(lambda: import_files([path], ImportOptions()))
            assert code not in {BftrainError.exit_code, _INTERRUPTED}, path.rename(Path(gettempdir()) / "spoilt.log")
            found[str(code)] += 1
    return found


@contextmanager
def _bounded() -> Iterator[None]:
    """Let more than a gigabyte be a ``MemoryError``, and end what takes long."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    timers = (
        (signal.ITIMER_PROF, signal.SIGPROF, _PATIENCE_S),
        (signal.ITIMER_REAL, signal.SIGALRM, _WAITING * _PATIENCE_S),
    )
    before = [signal.signal(number, end) for _, number, _ in timers]
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, hard))
    for timer, _, patience_s in timers:
        signal.setitimer(timer, patience_s)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for (_, number, _), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)
