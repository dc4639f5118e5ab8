"""Print the lowest version of each package that pyproject.toml allows, as constraints for pip.

``tools/lowest_versions.py EXTRA...`` covers bftrain's required packages and these extras.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

PYPROJECT: Final = Path(__file__).resolve().parents[1] / "pyproject.toml"
BOUND: Final = re.compile(r"([A-Za-z0-9._-]+)\s*(?:>=|==)\s*([0-9][0-9A-Za-z.]*)")


def lowest(requirements: list[str]) -> list[str]:
    """Return ``name==version`` for each requirement.

    >>> lowest(["numpy>=1.26", "mip>=1.17,<3"])
    ['numpy==1.26', 'mip==1.17']
    """
    found = [BOUND.match(one) for one in requirements]
    lacking = [one for one, bound in zip(requirements, found, strict=True) if bound is None]
    if lacking:
        raise SystemExit(f"pyproject.toml: no lowest version is given for {', '.join(lacking)}")
    return [f"{bound[1]}=={bound[2]}" for bound in found if bound is not None]


if __name__ == "__main__":
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    extras = [one for name in sys.argv[1:] for one in project["optional-dependencies"][name]]
    sys.stdout.write("\n".join(lowest([*project["dependencies"], *extras])) + "\n")
