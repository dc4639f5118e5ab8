"""The version of bftrain."""

from __future__ import annotations

__version__ = "0.2.0"
CITATION = f"The bftrain authors: bftrain, version {__version__} (software), after BFTrainer, arXiv:2106.12091"
