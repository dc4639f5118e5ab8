"""An sacct dump with nearly every possible defect. Each line says what; so small that one can count."""

from __future__ import annotations

from typing import Final

_ROWS: Final = (
    "slurmdbd: some news that no one asked for",  # 1 malformed
    "JobID|JobName|Partition|Start|End|NNodes|NodeList|State",  # 2
    "10|first|main|2026-01-01T00:00:00|2026-01-01T02:00:00|2|n[1-2]|COMPLETED",
    "11|second|main|2026-01-01T02:00:00|2026-01-01T03:00:00|1|n1|COMPLETED",  # 4 back to back, on n1
    "12|after|main|2026-01-01T02:00:05|2026-01-01T03:00:00|1|n2|COMPLETED",  # 5 a gap of 5 s
    "12.batch||main|2026-01-01T02:00:05|2026-01-01T03:00:00|1|n2|COMPLETED",  # 6 a step
    "12|after|main|2026-01-01T02:00:05|2026-01-01T03:00:00|1|n2|COMPLETED",  # 7 the same again
    "13|part|main|2026-01-01T02:30:00|2026-01-01T03:30:00|1|n2|COMPLETED",  # 8 shares n2 for 30 min
    "14|a|b|c|main|2026-01-01T03:00:00|2026-01-01T03:10:00|1|n1|COMPLETED",  # 9 separators; back to back
    "15|twice|main|2026-01-01T03:20:00|2026-01-01T03:40:00|2|n3,n3,n4|COMPLETED",  # 10 n3 again
    "16|pilot|pilot|2026-01-01T03:40:00|2026-01-01T03:50:00|1|n3|PREEMPTED",  # 11 preempted; back to back
    "17|again|main|2026-01-01T03:40:00|2026-01-01T03:50:00|1|n4|NODE_FAIL",  # 12 back to back
    "17|again|main|2026-01-01T03:45:00|2026-01-01T03:55:00|1|n4|COMPLETED",  # 13 holds n4 twice for 5 min
    "18|early|main|2026-01-01T01:00:00|2026-01-01T01:30:00|1|n5|COMPLETED",  # 14 out of order
    "19|ms|main|1767232800000|1767236400000|1|n5|COMPLETED",  # 15 from 02:00 to 03:00
    "20|waits|main|Unknown|Unknown|4|None assigned|PENDING",  # 16 never started
    "123_[4-9]|array|main|Unknown|Unknown|1|None assigned|PENDING",  # 17 the same
    "21|gone|main|Unknown|2026-01-01T03:00:00|1|None assigned|CANCELLED by 0",  # 18 the same
    "22|fast|main|2026-01-01T03:00:00|2026-01-01T03:00:00|1|n1|FAILED",  # 19 zero length
    "23|back|main|2026-01-01T03:00:00|2026-01-01T02:00:00|1|n1|COMPLETED",  # 20 backwards
    "24|where|main|2026-01-01T03:00:00|2026-01-01T03:01:00|3|None assigned|COMPLETED",  # 21 no nodes
    "25|open|main|2026-01-01T03:00:00|Unknown|1|n1|COMPLETED",  # 22 no end
    "26|when|main|yesterday|2026-01-01T03:00:00|1|n1|COMPLETED",  # 23 no time
    "27|huge|main|2026-01-01T03:00:00|2e400|1|n1|COMPLETED",  # 24 no time
    "28|which|main|2026-01-01T03:00:00|2026-01-01T03:01:00|1|n[1-|COMPLETED",  # 25 no node set
    "29|short|main",  # 26 malformed
    "30|" + "x" * 2_000_000 + "|main|2026-01-01T03:00:00|2026-01-01T03:01:00|1|n1|COMPLETED",  # 27 too long
    "31|M\udcfcller|main|2026-01-01T03:00:00|2026-01-01T03:05:00|1|n5|COMPLETED",  # 28 not UTF-8; back to back
    "32|late|main|2026-01-01T09:00:00|2026-01-01T10:00:00|1|n1|COMPLETED",  # 29 after five hours of nothing
    "JobID|JobName|Partition|Start|End|NNodes|NodeList|State",  # 30 the header again
    "33|last|main|2026-01-01T09:30:00|2026-01-01T09:40:00|1|n2|TIMEOUT",  # 31 not ended
)
BROKEN: Final = "\n".join(_ROWS).encode("utf-8", "surrogateescape")
MENDED: Final = "\n".join((*_ROWS[1:5], _ROWS[7], _ROWS[28], _ROWS[30], "")).encode()
