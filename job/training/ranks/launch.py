"""Processes of ranks on this machine, joined by gloo; they end together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.multiprocessing.spawn import ProcessException

from freshet.errors import FreshetError
from freshet.job.machine.processes import die_with_parent

_FAILED = "failed"
_INTERFACE, _LOOPBACK = "GLOO_SOCKET_IFNAME", "lo"
_WAIT = timedelta(minutes=30)  # for the slowest rank; one that ends is noticed at once


class RankFailedError(FreshetError):
    """A process of a rank ended before its work was done."""


def run_on_ranks(work: Callable[..., None], ranks: int, arguments: Sequence[Any] = ()) -> None:
    """Call `work(rank, *arguments)` in a process for each rank, and wait until all have ended.

    In each process `torch.distributed` is initialised, by gloo. If one fails, the others are ended. They end with this
    process, too.

    `work`: a function of a module, which each process imports; `arguments`: plain data, which are pickled.
    Raises: RankFailedError naming the rank and what it ended with.
    """
    with tempfile.TemporaryDirectory(prefix="freshet-ranks-") as folder:
        given = ranks, str(Path(folder) / "meeting"), os.getpid(), work, tuple(arguments)
        running = mp.spawn(_run, given, nprocs=ranks, join=False)
        try:
            while not running.join():
                pass
        except ProcessException as error:
            raise RankFailedError(_reason(error, Path(folder) / _FAILED)) from error
        finally:  # an interrupt leaves none behind
            for process in running.processes:
                process.kill()


def _run(rank: int, ranks: int, meeting: str, parent: int, work: Callable[..., None], arguments: Sequence[Any]) -> None:
    die_with_parent()
    if os.getppid() != parent:  # it ended before we could ask for its signal
        return
    os.environ.setdefault(_INTERFACE, _LOOPBACK)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks, timeout=_WAIT)
    try:
        work(rank, *arguments)
    except Exception as error:
        _note_first(Path(meeting).with_name(_FAILED), f"rank {rank}: {type(error).__name__}: {error}")
        raise
    finally:
        dist.destroy_process_group()


def _note_first(path: Path, text: str) -> None:
    """Write what a rank failed with, unless another one has failed before: then it fails since that one is gone."""
    with suppress(FileExistsError), path.open("x") as file:
        file.write(text)


def _reason(error: ProcessException, noted: Path) -> str:
    """Return what the first rank that failed has noted; of one that was killed, what its process ended with."""
    if noted.exists() and (text := noted.read_text()):
        return " ".join(text.split())
    lines = str(error).strip().splitlines()
    return f"rank {getattr(error, 'error_index', '')}: {lines[-1] if lines else type(error).__name__}"
