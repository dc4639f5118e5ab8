"""A few jobs in each form that neighbouring systems write, of our own making, and how to read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from bftrain import WorkloadOptions, import_workload
from tests.helpers.samples import swf_job

TABLE: Final = {
    "v100": {
        "('Net (batch size 16)', 1)": {"null": 10.0, "('Other', 1)": [4.0, 5.0]},
        "('Net (batch size 16)', 2)": {"null": 19.0},
        "('Net (batch size 16)', 4)": {"null": 15.0},
        "('Net (batch size 16)', 8)": {"null": 60.5},
        "('Other', 1)": {"null": 3.0},
    },
    "k80": {
        "('Net (batch size 16)', 1)": {"null": 0.0},
        "('Net (batch size 16)', 2)": {"null": 4.0},
        "('Net (batch size 16)', 4)": {"null": 6.0},
        "('Other', 1)": {"null": 0.0},
    },
}


def gavel_line(
    steps: object = 1000, gang: object = 1, arrival: object = "0.000000", *, fields: int = 10, **other: object
) -> str:
    """Write a job as Gavel's traces of so many fields do; ``kind``, ``weight`` and ``slo`` by name."""
    kind = other.get("kind", "Net (batch size 16)")
    weight, slo = other.get("weight", 1), other.get("slo", "-1.000000")
    forms = {
        10: (kind, "python3 main.py", "vision", "--steps", 1, steps, gang, weight, slo, arrival),
        9: (kind, "python3 main.py", "--steps", 1, steps, gang, weight, slo, arrival),
        7: (kind, "python3 main.py", "--steps", 1, steps, arrival, gang),
        6: (kind, "python3 main.py", "--steps", steps, arrival, gang),
    }
    return "\t".join(map(str, forms[fields])) + "\n"


def philly_job(name: str, submitted: object, *attempts: tuple[object, object, int], **other: object) -> dict[str, Any]:
    """Describe a job as Philly's job log does; an attempt is its start, its end and how many GPUs it had."""
    detail = [
        {"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": [f"gpu{gpu}" for gpu in range(gpus)]}]}
        for start, end, gpus in attempts
    ]
    plain = {
        "status": "Pass",
        "vc": "vc1",
        "jobid": name,
        "attempts": detail,
        "submitted_time": submitted,
        "user": "u1",
    }
    return plain | other


GAVEL: Final = gavel_line() + gavel_line(500, 2, 60.5, weight=5, slo=2) + gavel_line(30, 1, 61, kind="Other")
PHILLY: Final = json.dumps(
    [
        philly_job("app_1", "2017-10-07 01:00:00", ("2017-10-07 01:00:10", "2017-10-07 02:00:10", 8)),
        philly_job(
            "app_2",
            "2017-10-07 01:00:30",
            ("2017-10-07 01:01:00", "2017-10-07 01:02:00", 2),
            ("2017-10-07 01:03:00", "2017-10-07 01:04:00", 2),
        ),
    ],
    indent=1,
)
ARRIVALS: Final = (
    "timestamp,duration,num_gpus,gpu_time,cluster\n"
    "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
    "2017-10-09 06:13:03,2951.0,4,11804.0,6214e9\n"
)
BLOX: Final = "job_id,arrival_s,duration_s,gpus\n0,130,35424.347,1\n1,396,4578.833,4\n"
SWF: Final = (
    "; UnixStartTime: 1600000000\n; MaxNodes: 8\n; MaxProcs: 16\n" + swf_job(1, 0, 5, 100, 5) + swf_job(2, 50, 0, 7, 1)
)
SAMPLES: Final = {"gavel": GAVEL, "philly": PHILLY, "philly table": ARRIVALS, "blox": BLOX, "swf": SWF}


def table(folder: Path, content: object = TABLE) -> Path:
    path = folder / "speeds.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def read(folder: Path, text: str | bytes, *, speeds: object = None, **options: Any) -> Any:  # noqa: ANN401 - options, and a workload
    path = folder / "jobs"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    if speeds is not None:
        options["speeds"] = table(folder, speeds)
    return import_workload(path, WorkloadOptions(**options))
