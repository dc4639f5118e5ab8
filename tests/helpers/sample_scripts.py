"""Sample scripts, as arguments of a launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "programs"
TORCH: Final = (str(_FOLDER / "sample_torch.py"),)
HOROVOD: Final = (str(_FOLDER / "sample_horovod.py"),)
PLAIN: Final = (str(_FOLDER / "sample_plain.py"),)  # needs no torch
