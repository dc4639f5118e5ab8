"""The library file of the compiled knapsack: its name, which its sources determine, and how it is compiled.

Only the standard library is imported, so that the build of a package can use it before anything is installed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent / "compiled"
# Arithmetic as numpy's, also where CC asks for a faster one: that would change it for the whole process
_EXACT: Final = ("-fno-strict-aliasing", "-ffp-contract=off", "-fno-fast-math", "-fno-unsafe-math-optimizations")
_FLAGS: Final = ("-std=c99", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", *_EXACT)


def library_file() -> Path:
    """Return the path of the library that belongs to the present sources, whether or not it is there."""
    digest = sha256(b"\0".join(file.read_bytes() for file in _files(".[ch]"))).hexdigest()[:16]
    return SOURCES / f"knapsack-{sysconfig.get_platform()}-{digest}.so"


def compile_library() -> Path:
    """Compile the sources if that is not done; raise ``OSError`` or ``CalledProcessError`` where it cannot be done.

    ``CC`` in the environment names the compiler. The file appears whole; those of other sources are deleted.
    """
    library = library_file()
    if library.exists():
        return library
    compiler = shlex.split(os.environ.get("CC", "cc"))
    with tempfile.TemporaryDirectory(dir=SOURCES, prefix=".compiling-") as place:
        made = Path(place, library.name)
        command = [*compiler, *_FLAGS, "-o", str(made), *map(str, _files(".c")), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - the user's own compiler
        made.replace(library)
    for other in SOURCES.glob("knapsack-*.so"):
        if other != library and other.name.startswith(library.name.rpartition("-")[0]):
            other.unlink(missing_ok=True)
    return library


def _files(ending: str) -> list[Path]:
    return sorted(SOURCES.glob(f"*{ending}"))
