"""Compile the knapsack of ``exact`` when the package is built; without a C compiler it stays pure Python."""

from __future__ import annotations

import re
import runpy
import subprocess
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("bftrain_solvers", "knapsack")
OLDEST_GLIBC = 17  # minor version; pip knows 2.17 on every architecture


class KnapsackBuildHook(BuildHookInterface[Any]):
    """Puts the library into the wheel, next to its sources; an editable installation has it in the checkout."""

    _folder: TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel with the platform; the library does not depend on the version of Python.

        For a wheel it is compiled elsewhere than in the checkout, which may be read-only, or in use by another build.
        """
        script = Path(self.root, "solvers", FOLDER, "library_file.py")
        try:
            compile_library = runpy.run_path(str(script))["compile_library"]
            if version == "editable":
                compile_library()
                return
            self._folder = TemporaryDirectory(prefix="bftrain-compiled-")
            library = compile_library(Path(self._folder.name))
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            words = getattr(error, "stderr", "") or str(error)
            self.app.display_warning(f"exact will use numpy only, and be slower: its C code was not compiled ({words})")
            self.finalize(version, build_data, "")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform(library.read_bytes())}"
        build_data["force_include"][str(library)] = str(FOLDER / "compiled" / library.name)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Delete the library that was compiled for the wheel."""
        if self._folder is not None:
            self._folder.cleanup()


def _platform(library: bytes) -> str:
    """Return the platform tag: on Linux, the oldest glibc on which the library loads. It needs libc and libm only."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    minors = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library)]
    return platform.replace("linux_", f"manylinux_2_{max(OLDEST_GLIBC, *minors)}_", 1) if minors else platform
