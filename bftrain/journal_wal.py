"""Check of SQLite's write-ahead log, the file ``-wal`` beside a journal after a kill.

SQLite reads it up to the first write whose checksum is wrong and ignores the rest without a word: right for the write
that a kill cut off, which is the last one, but damage further in front would take back all that was done since. So
whole writes of the same generation behind the point where SQLite would stop are damage.

Each frame is a header of 24 bytes (page, size of the database for the last frame of a write and 0 for others, two salts
of the generation, two checksums) and a page. The checksum of a frame goes on from that of the frame before, two words
of 32 bits at a time: s = s + x + t; t = t + y + s. That is linear, so the part that a frame adds is a product with
constant vectors.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Final

import numpy as np

from bftrain.text_formats import counted

_HEADER: Final = 32  # bytes of the file's header
_FRAME: Final = 24  # bytes of a frame's header
_MAGIC: Final = 0x377F0682  # with the last bit: words in checksums are big-endian
_PAGE: Final = 4096
_WORD: Final = 0xFFFFFFFF
_AGAIN_S: Final = 0.1  # before a second look: another process may be writing


def wal_of(path: Path) -> Path:
    """Return the path of a journal's write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def damaged_tail(path: Path) -> str:
    """Return what of a journal's write-ahead log is lost by damage; "" if it is sound.

    Only that file is read: to close another one of SQLite's in a process that uses it would release its locks.
    """
    place, lost = _damage(path)
    if lost:
        time.sleep(_AGAIN_S)
    if not lost or _damage(path)[0] != place:  # it was being written
        return ""
    return f"{counted(lost, 'write')} in {wal_of(path).name}, the latest, cannot be read"


def _damage(path: Path) -> tuple[tuple[int, ...], int]:
    """Return the salts and the number of the first frame that SQLite would not read, and the writes from there on."""
    try:
        data = wal_of(path).read_bytes()
    except OSError:
        return (), 0
    if len(data) < _HEADER + _FRAME + _PAGE:
        return (), 0
    magic, _, page, _, *salts, check0, check1 = struct.unpack(">8I", data[:_HEADER])
    order = ">" if magic & 1 else "<"
    sound = magic & ~1 == _MAGIC and (check0, check1) == _chained(data[: _HEADER - 8], order)
    size = _FRAME + (page if sound else _PAGE)
    count = (len(data) - _HEADER) // size
    frames = np.frombuffer(data, np.uint8, count * size, _HEADER).reshape(count, size)
    heads = np.ascontiguousarray(frames[:, :_FRAME]).view(">u4")
    if not sound:
        salts = heads[0, 2:4].tolist()  # of the first frame, which follows
    own = (heads[:, 2:4] == salts).all(axis=1)
    consistent = own & _consistent(frames, heads, (check0, check1), order if sound else "<")
    valid = int(np.argmin(consistent)) if sound and not consistent.all() else count if sound else 0
    # A kill within a write leaves a last frame that is torn; the frames of a real write agree with each other
    return (*salts, valid), int(np.count_nonzero(consistent[valid:] & (heads[valid:, 1] > 0)))


def _consistent(
    frames: np.ndarray, heads: np.ndarray, sums: tuple[int, int], order: str
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return of each frame whether its checksum follows from its content and the checksum of the frame before."""
    checked = np.ascontiguousarray(np.delete(frames, np.s_[8:_FRAME], axis=1)).view(f"{order}u4").astype(np.uint32)
    (to0, to1), (a, b, c) = _weights(checked.shape[1])
    adds0, adds1 = ((checked * weights).sum(axis=1, dtype=np.uint32) for weights in (to0, to1))
    given = heads[:, 4:6].astype(np.uint32)
    before = np.concatenate([np.array([sums], np.uint32), given[:-1]])
    s = before[:, 0] * np.uint32(a) + before[:, 1] * np.uint32(b) + adds0
    t = before[:, 0] * np.uint32(b) + before[:, 1] * np.uint32(c) + adds1
    return np.asarray((given[:, 0] == s) & (given[:, 1] == t))


def _weights(words: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[int, int, int]]:
    """Return what each of so many words adds to both sums, and the symmetric matrix applied to the sums before."""
    a, b, c = 1, 0, 1  # the matrix (a b, b c) for the pairs that follow
    to0, to1 = [0] * words, [0] * words
    for pair in range(words - 2, -1, -2):
        # x enters both sums of its pair, y the second one only
        to0[pair], to1[pair] = (a + b) & _WORD, (b + c) & _WORD
        to0[pair + 1], to1[pair + 1] = b, c
        a, b, c = (a + b) & _WORD, (a + 2 * b) & _WORD, (b + 2 * c) & _WORD
    return (np.array(to0, np.uint32), np.array(to1, np.uint32)), (a, b, c)


def _chained(data: bytes, order: str) -> tuple[int, int]:
    s = t = 0
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for x, y in zip(words[::2], words[1::2], strict=True):
        s = (s + x + t) & _WORD
        t = (t + y + s) & _WORD
    return s, t
