"""Compile the shared library of the knapsack solver, and name it by a hash of its C sources.

Only the standard library is imported, so package builds can use this module before any installation.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent / "compiled"
# IEEE arithmetic like numpy, even if CC contains -ffast-math, which would change the mode of the whole process
_EXACT: Final = ("-fno-strict-aliasing", "-ffp-contract=off", "-fno-fast-math", "-fno-unsafe-math-optimizations")
_FLAGS: Final = ("-std=c99", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", *_EXACT)


def library_file() -> Path:
    """Return the path of the library for the current sources; the file need not exist."""
    digest = sha256(b"\0".join(file.read_bytes() for file in _files(".[ch]"))).hexdigest()[:16]
    return SOURCES / f"knapsack-{sysconfig.get_platform()}-{digest}.so"


def compile_library(folder: Path | None = None) -> Path:
    """Compile the sources; raise ``OSError``, ``ValueError`` or ``CalledProcessError`` if compiling fails.

    ``CC`` in the environment sets the compiler. By default, the library is written next to its sources, unless a
    loadable library exists there. It appears atomically, and libraries from older sources are deleted.
    """
    library = library_file()
    if folder is not None:
        library = folder / library.name
    elif _loads(library):
        return library
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    sources = _files(".c")
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".compiling-") as place:
        made = Path(place, library.name)
        command = [*compiler, *_FLAGS, "-o", str(made), *map(str, sources), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - the user's own compiler
        shutil.copymode(sources[0], made)  # readable for all users with access to the sources
        made.replace(library)
    for other in other_libraries() if folder is None else ():
        other.unlink(missing_ok=True)
    return library


def other_libraries() -> list[Path]:
    """Return the libraries compiled from other versions of the sources for this platform."""
    library = library_file()
    return [file for file in SOURCES.glob(f"{library.name.rpartition('-')[0]}-*.so") if file != library]


def _loads(library: Path) -> bool:
    """Return whether a library exists and loads. It may need another C library, if it was compiled elsewhere."""
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return False
    return True


def _files(ending: str) -> list[Path]:
    return sorted(SOURCES.glob(f"*{ending}"))
