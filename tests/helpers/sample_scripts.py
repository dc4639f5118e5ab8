"""The sample scripts of ``bftrain train``, as arguments of a launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import bftrain_elastic

_FOLDER: Final = Path(bftrain_elastic.__file__).parent / "tryout"
TORCH: Final = (str(_FOLDER / "sample_script.py"),)
HOROVOD: Final = (str(_FOLDER / "sample_script_horovod.py"),)
PLAIN: Final = (str(_FOLDER / "sample_script_plain.py"),)  # needs no torch
