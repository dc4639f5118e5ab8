"""Whether PyTorch is here, so that tests marked ``torch`` can run."""

from __future__ import annotations

from importlib.util import find_spec


def lacking() -> str:
    """Return why tests that need PyTorch cannot run here; nothing if they can."""
    if find_spec("torch") is None:
        return "PyTorch is not installed; install it with: pip install '.[torch]'"
    return ""
