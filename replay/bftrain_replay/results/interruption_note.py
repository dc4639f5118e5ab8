"""Interrupted: how far a replay came that did not reach its end, as the first words of its headline and its page."""

from __future__ import annotations

from bftrain import text_formats


def note(simulated_s: float, span_s: float, *, complete: bool) -> str:
    """Return a sentence about a replay that was interrupted; nothing about a complete one.

    >>> note(3600.0, 14 * 86_400.0, complete=False)
    'Interrupted after 60 min of 14 days. '
    >>> note(3.2 * 86_400.0, 14 * 86_400.0, complete=False)
    'Interrupted after 3.2 of 14 days. '
    >>> note(3600.0, 3600.0, complete=False)
    'Interrupted before its yardsticks were replayed, so U is not known. '
    """
    if complete:
        return ""
    if simulated_s >= span_s:
        return "Interrupted before its yardsticks were replayed, so U is not known. "
    done, whole = text_formats.duration(simulated_s), text_formats.duration(span_s)
    number, _, unit = done.partition(" ")
    return f"Interrupted after {number if whole.endswith(f' {unit}') else done} of {whole}. "
