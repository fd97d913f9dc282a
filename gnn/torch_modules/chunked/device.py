"""A device of torch: what is copied to it and back beside the computing, and how long both take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from freshet.errors import InputError

CUDA, CPU = "cuda", "cpu"
_TYPES = {"<f4": torch.float32, "<i4": torch.int32, "<i8": torch.int64}
_FREE_SHARE = 0.8  # of the free memory of a device: its libraries and fragments take the rest


class DeviceMemoryError(InputError):
    """A device that has less memory than a pass was told."""


class FoundDevice(NamedTuple):
    """A device of torch, its name for people, and the bytes of it that a pass may take."""

    device: torch.device
    name: str
    memory: int


def why_no_cuda() -> str | None:
    """Return why torch has no CUDA here, in words; None where it has."""
    if torch.cuda.is_available():
        return None
    build = torch.version.cuda
    return "this torch is built without CUDA" if build is None else f"torch, built for CUDA {build}, finds no GPU"


def find_device(kind: str, memory: int | None) -> FoundDevice:
    """Return the device of a kind, `CUDA` or `CPU`; without `memory` most of what is free on a GPU."""
    if kind == CPU:
        assert memory is not None  # there is no pass on the processor without a budget
        return FoundDevice(torch.device(CPU), CPU, memory)
    free, _ = torch.cuda.mem_get_info()
    device = torch.device(CUDA, torch.cuda.current_device())
    return FoundDevice(device, f"cuda, {torch.cuda.get_device_name(device)}", memory or int(_FREE_SHARE * free))


@dataclass
class PassFigures:
    """Figures of passes. `transfer_s` and `compute_s` overlap on a GPU; a share is one of `seconds`."""

    rows: int = 0
    chunks: int = 0
    seconds: float = 0.0
    transfer_s: float = 0.0
    compute_s: float = 0.0
    bytes_copied: int = 0
    bytes_kept: int = 0
    """Of rows that a chunk shares with the one before it, and that were not copied again."""
    bytes_back: int = 0

    def record(self) -> dict[str, Any]:
        """Return the JSON form."""
        seconds = max(self.seconds, 1e-9)
        return {
            "rows_s": round(self.rows / seconds),
            "transfer_share": round(self.transfer_s / seconds, 3),
            "compute_share": round(self.compute_s / seconds, 3),
            "bytes_copied": self.bytes_copied,
            "bytes_kept": self.bytes_kept,
            "bytes_back": self.bytes_back,
            "chunks": self.chunks,
        }

    def add(self, other: PassFigures) -> None:
        """Add those of another pass."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class DeviceCopies:
    """Copies between the host and a device: on a GPU from pinned memory, in a stream of their own.

    On the processor the same copies are made one after the other.
    """

    device: torch.device
    figures: PassFigures = field(default_factory=PassFigures)

    def __post_init__(self) -> None:
        self._is_cuda = self.device.type == CUDA
        self._stream: Any = torch.cuda.Stream(self.device) if self._is_cuda else None
        self._timed: list[tuple[str, Any, Any]] = []

    def gathered(self, rows: np.ndarray, ids: np.ndarray | slice) -> Tensor:
        """Return rows of an array as a tensor of the host that can be copied."""
        count = len(rows[ids]) if isinstance(ids, slice) else len(ids)
        made = torch.empty((count, *rows.shape[1:]), dtype=_TYPES[rows.dtype.str], pin_memory=self._is_cuda)
        if isinstance(ids, slice):
            made.numpy()[...] = rows[ids]
        elif made.numel():
            np.take(rows, ids, axis=0, out=made.numpy(), mode="clip")
        return made

    def to_device(self, arrays: list[Tensor]) -> list[Tensor]:
        """Begin to copy tensors of the host; `arrived` waits for them."""
        self.figures.bytes_copied += sum(one.nbytes for one in arrays)
        with torch.cuda.stream(self._stream), self._measured("transfer_s"):
            return [one.to(self.device, non_blocking=True, copy=True) for one in arrays]

    def arrived(self, copies: list[Tensor]) -> None:
        """Have what is computed from here on wait for all copies that were begun."""
        if self._is_cuda:
            computing = torch.cuda.current_stream(self.device)
            computing.wait_stream(self._stream)
            for one in copies:
                one.record_stream(computing)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Measure what is computed meanwhile."""
        with self._measured("compute_s"):
            yield

    def to_host(self, made: dict[str, Tensor]) -> Callable[[], dict[str, np.ndarray]]:
        """Begin to copy results back; what is returned waits for them and gives them."""
        self.figures.bytes_back += sum(one.nbytes for one in made.values())
        with self._measured("transfer_s"):
            back = {name: torch.empty(one.shape, pin_memory=self._is_cuda) for name, one in made.items()}
            for name, one in made.items():
                back[name].copy_(one, non_blocking=True)
        event: Any = torch.cuda.Event() if self._is_cuda else None
        if event is not None:
            event.record()

        def wait() -> dict[str, np.ndarray]:
            if event is not None:
                event.synchronize()
            return {name: one.numpy() for name, one in back.items()}

        return wait

    def finish(self) -> None:
        """Wait for everything, and add up what was measured."""
        if self._is_cuda:
            torch.cuda.synchronize(self.device)
        for name, begin, end in self._timed:
            seconds = begin.elapsed_time(end) / 1000 if self._is_cuda else end - begin
            setattr(self.figures, name, getattr(self.figures, name) + seconds)
        self._timed.clear()

    @contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        begin = self._now()
        yield
        self._timed.append((name, begin, self._now()))

    def _now(self) -> Any:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()  # in the stream of the caller
        return event
