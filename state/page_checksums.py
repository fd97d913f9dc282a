"""Checksums of a file's pages: they say which part of it is damaged, and several threads take them side by side."""

from __future__ import annotations

import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

PAGE_BYTES = 1 << 20
_STEP_BYTES = PAGE_BYTES  # smaller ones stay in a core, but threads would wait for the interpreter more often
_THREADS_MAX = 4


class PageChecksums(NamedTuple):
    """The CRC-32 of each page of a file, of which the last one may be shorter.

    Shapes: crc32s (pages,) uint32. Units: `page_bytes` bytes.
    """

    page_bytes: int
    crc32s: np.ndarray

    @staticmethod
    def of(file: int, nbytes: int, page_bytes: int = PAGE_BYTES, into: np.ndarray | None = None) -> PageChecksums:
        """Compute those of an open file's first bytes, read `into` a contiguous array of that size if one is given."""
        pages = -(-nbytes // page_bytes)
        crc32s, turns = np.zeros(pages, np.uint32), count()
        target = None if into is None else into.reshape(-1).view(np.uint8).data

        def take_turns() -> None:
            step = memoryview(bytearray(_STEP_BYTES if target is None else 0))
            while (page := next(turns)) < pages:
                begin, end = page * page_bytes, min((page + 1) * page_bytes, nbytes)
                crc32s[page] = _crc32(file, begin, end, step if target is None else target[begin:end])

        _side_by_side(take_turns, pages)
        return PageChecksums(page_bytes, crc32s)

    @staticmethod
    def of_writing(path: Path, data: np.ndarray) -> PageChecksums:
        """Write a contiguous array to a file; its checksums, each taken while the page is in the cache."""
        view = data.reshape(-1).view(np.uint8).data if data.size else memoryview(b"")
        pages = [view[begin : begin + PAGE_BYTES] for begin in range(0, len(view), PAGE_BYTES)]
        crc32s = np.zeros(len(pages), np.uint32)
        with path.open("wb") as file:
            for k, page in enumerate(pages):
                crc32s[k] = zlib.crc32(page)
                file.write(page)
        return PageChecksums(PAGE_BYTES, crc32s)

    def encode(self) -> str:
        """The checksums as text: base64 of little-endian uint32."""
        return b64encode(self.crc32s.astype("<u4").tobytes()).decode()

    @staticmethod
    def decode(text: str, page_bytes: int) -> PageChecksums:
        """The checksums of their text."""
        return PageChecksums(page_bytes, np.frombuffer(b64decode(text), "<u4"))

    def difference(self, found: PageChecksums, nbytes: int) -> str | None:
        """Describe the difference of a file of this size from its checksums; None if there is none."""
        if len(found.crc32s) != len(self.crc32s):
            return f"it has {len(found.crc32s)} pages, expected {len(self.crc32s)}"
        damaged = np.flatnonzero(found.crc32s != self.crc32s).tolist()
        if not damaged:
            return None
        first = damaged[0] * self.page_bytes
        more = f"; {len(damaged):,} of its {len(self.crc32s):,} pages are damaged" if len(damaged) > 1 else ""
        return f"page {damaged[0]:,}, bytes {first:,} to {min(nbytes, first + self.page_bytes):,}{more}"


def _crc32(file: int, begin: int, end: int, room: memoryview) -> int:
    """The CRC-32 of a range of a file; `room` is for all of it, or for a step of it at a time."""
    crc32, at = 0, begin
    while at < end:
        to = at - begin if len(room) == end - begin else 0
        some = room[to : to + min(_STEP_BYTES, end - at)]
        got = os.preadv(file, [some], at)
        if not got:  # the file was cut off: the checksum tells
            break
        crc32 = zlib.crc32(some[:got], crc32)
        at += got
    return crc32


def _side_by_side(work: Callable[[], None], most: int) -> None:
    """Do the same in several threads, which share it out among them; reading and zlib let others run meanwhile."""
    threads = min(most, _THREADS_MAX, len(os.sched_getaffinity(0)))
    if threads <= 1:
        work()
        return
    with ThreadPoolExecutor(threads, "checksums") as pool:
        for waiting in [pool.submit(work) for _ in range(threads)]:
            waiting.result()
