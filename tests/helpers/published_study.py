"""The published study's log and tasks, for those who have them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bftrain import ImportOptions, save_log, save_tasks
from bftrain_datasets.importing.pipeline import import_files
from bftrain_datasets.published.tasks import import_tasks
from tests.helpers.site_data import site_data

TRIALS: Final = "hps-shufflenet-{}-1000J"
MIX: Final = "ImageNet-imgps-{}-1001J"


def save_summit(path: Path) -> None:
    """Save the published two-week log of Summit under ``path``, or skip the test that asks for it."""
    save_log(import_files([site_data("summit/ndstat-10sdn6-evt.tar.gz")], ImportOptions()).log, path)


def save_published_tasks(path: Path, names: str) -> None:
    """Save a published set of tasks, ``TRIALS`` or ``MIX``, under ``path``."""
    bounds, speeds = (site_data(f"summit/{names.format(part)}.pkl") for part in ("Jbnd", "JNPs"))
    save_tasks(import_tasks(bounds, speeds, exact=True).tasks, path)
