"""Ids as kernels take them: int64 numbers, or the UTF-8 of strings one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np


def frozen(array: np.ndarray) -> np.ndarray:
    """A read-only view: kernels are compiled for one kind of array only."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, slots=True)
class Texts:
    """String ids. Shapes: offsets (n + 1,) int64, from 0 on; data (bytes,) uint8; both read-only."""

    offsets: np.ndarray
    data: np.ndarray

    @staticmethod
    def of(offsets: np.ndarray, data: np.ndarray) -> Texts:
        """The texts between these offsets, which may begin anywhere."""
        offsets = np.asarray(offsets, np.int64)
        first, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        return Texts(frozen(offsets - first if len(offsets) else np.zeros(1, np.int64)), frozen(data[first:end]))

    @staticmethod
    def encode(texts: Sequence[str]) -> Texts:
        """The texts of Python strings."""
        raw = [text.encode() for text in texts]
        offsets = np.zeros(len(raw) + 1, np.int64)
        np.cumsum([len(one) for one in raw], out=offsets[1:])
        return Texts(frozen(offsets), frozen(np.frombuffer(b"".join(raw), np.uint8)))

    def decode(self) -> list[str]:
        """The texts as Python strings."""
        raw, ends = self.data.tobytes(), self.offsets.tolist()
        return [raw[a:b].decode() for a, b in pairwise(ends)]

    def slice(self, begin: int, end: int) -> Texts:
        """Some of them."""
        return Texts.of(self.offsets[begin : end + 1], self.data)

    def __len__(self) -> int:
        return len(self.offsets) - 1


Ids = np.ndarray | Texts  # (n,) int64, or Texts


def slice_of(ids: Ids, begin: int, end: int) -> Ids:
    """Some of the ids."""
    return ids.slice(begin, end) if isinstance(ids, Texts) else ids[begin:end]


def plain_ids(ids: Ids) -> list[Any]:
    """The ids as Python has them."""
    return ids.decode() if isinstance(ids, Texts) else ids.tolist()


def text_bytes(ids: Ids) -> int:
    """Bytes of the text of string ids."""
    return ids.data.nbytes if isinstance(ids, Texts) else 0
