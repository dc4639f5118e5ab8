"""Tells bftrain that a job of PBS started or ended: one small file in a spool folder.

PBS runs this in its own Python on the node (events execjob_begin, execjob_epilogue, execjob_end), so it uses only the
standard library and Python 3.6. It cannot fail a job: after any error the event is accepted. It writes only while
bftrain reads (the file .reader exists), and files appear complete or not at all. A node keeps at most a hundred files
per event: if bftrain was killed and left .reader behind, new files replace old ones.
"""

import os
import socket
from pathlib import Path
from typing import Any

import pbs

SPOOL = Path("@SPOOL@")
WHAT = {"EXECJOB_BEGIN": "start", "EXECJOB_EPILOGUE": "ending", "EXECJOB_END": "end"}


def line_of(event: Any) -> str:  # noqa: ANN401 - a module without types
    """Return the line for an event; empty for other events.

    Each name ends with '+', so the reader takes it verbatim instead of expanding brackets. The user id stays empty, and
    '.' ends the line.
    """
    kinds = {getattr(pbs, name, None): what for name, what in WHAT.items()}
    what = kinds.get(event.type)
    if what is None:
        return ""
    job = event.job
    parts = str(job.exec_vnode).strip("()").split(")+(")
    names = sorted({chunk.split(":")[0] for part in parts for chunk in part.split("+")})
    nodes = "".join(name + "+" for name in names)
    return f"bftrain1 {what} {job.id} {int(job.run_count or 0)} {nodes} {job.queue}  .\n"


def tell(event: Any) -> None:  # noqa: ANN401 - as above
    """Write the line, if there is a reader."""
    if not (SPOOL / ".reader").exists():
        return
    line = line_of(event)
    if not line:
        return
    number = int(str(event.job.id).split(".")[0].split("[")[0])
    name = f"{line.split()[1]}.{socket.gethostname()}.{number % 100}"
    data = line.encode("ascii")
    hidden = SPOOL / f".{name}.{os.getpid()}"
    file = os.open(str(hidden), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.fchmod(file, 0o644)
        os.write(file, data)
        hidden.rename(SPOOL / name)
    except OSError:  # the disk may be full
        hidden.unlink()
        raise
    finally:
        os.close(file)


event = pbs.event()
try:
    tell(event)
except BaseException as error:  # noqa: BLE001 - a job must not fail because of us
    pbs.logmsg(pbs.LOG_WARNING, f"bftrain: {type(error).__name__}: {error}")
event.accept()
