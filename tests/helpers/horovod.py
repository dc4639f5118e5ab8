"""Whether Horovod is here, so that tests marked ``horovod`` can run."""

from __future__ import annotations

from importlib.util import find_spec


def lacking() -> str:
    """Return why tests that need Horovod cannot run here; nothing if they can."""
    if find_spec("horovod") is None:
        return "Horovod is not built for this environment; build it with: make horovod"
    return ""
