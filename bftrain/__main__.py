"""``python -m bftrain`` is the command ``bftrain``."""

from bftrain.cli.main import run

run()
