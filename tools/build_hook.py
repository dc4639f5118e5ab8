"""Compile the knapsack of ``exact`` when the package is built; without a C compiler it stays pure Python."""

from __future__ import annotations

import runpy
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("solvers", "bftrain_solvers", "knapsack")


class KnapsackBuildHook(BuildHookInterface[Any]):
    """Puts the library into the wheel, beside its sources; an editable installation has it in the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tag the wheel with the platform; the library does not depend on the version of Python."""
        compile_library = runpy.run_path(str(Path(self.root, FOLDER, "library_file.py")))["compile_library"]
        try:
            library = compile_library()
        except (OSError, subprocess.CalledProcessError) as error:
            words = getattr(error, "stderr", "") or str(error)
            self.app.display_warning(f"exact will use numpy only, and be slower: no C compiler works here ({words})")
            return
        if version == "editable":
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["artifacts"].append(f"/{library.relative_to(self.root)}")
