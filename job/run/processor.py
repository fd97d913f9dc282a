"""Processor of a job: chosen before numpy is loaded, recorded, and kept when the job is resumed."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from freshet.job.errors import UsageError
from freshet.job.folder.run_file import read_run
from freshet.kernels.processor import PORTABLE_BLAS, Processor, ProcessorError, choose_blas, core_of, hold, running

if TYPE_CHECKING:
    from freshet.gnn.any_plan import AnyPlan

PORTABLE, ANY = "portable", "any"


def settle(chosen: str | None, *, resumed: Path | None) -> None:
    """Have OpenBLAS take the job's kernels in this process and its children; call it before anything loads numpy.

    `chosen` is `--processor`. A job that goes on (its folder is `resumed`) takes those that it began with, whatever the
    environment says, if this processor has them.
    """
    if chosen == PORTABLE:
        choose_blas(PORTABLE_BLAS.get(platform.machine(), ""))
    elif resumed is not None and chosen is None:
        choose_blas(core_of(read_run(resumed).get("processor", {})))


def of_new_job(chosen: str | None, plan: AnyPlan) -> Processor:
    """Return what a new job computes with, from now on; nothing where it may be any. `chosen` is `--processor`.

    Raises: UsageError when the portable kernels are asked for and not there, or the model can't run on any processor.
    """
    if chosen == ANY:
        _refuse_any(plan)
        return {}
    here = running()
    wanted = PORTABLE_BLAS.get(platform.machine())
    if chosen == PORTABLE and core_of(here) != wanted:
        msg = (
            f"--processor portable: got {here['blas']}, expected OpenBLAS's {wanted} kernels, which this machine or "
            "numpy does not have; take --processor host"
        )
        raise UsageError(msg)
    return here


def of_resumed_job(chosen: str | None, recorded: Processor, plan: AnyPlan) -> Processor:
    """Return the processor of a resumed job.

    Raises: UsageError when this process computes with something else than the job has, or the model can't.
    """
    if chosen == ANY:
        _refuse_any(plan)
        return {}
    try:
        hold(recorded, or_any=not _needing_same_bits(plan))
    except ProcessorError as error:
        msg = f"--resume: {error}"
        raise UsageError(msg) from None
    return recorded or running()


def _needing_same_bits(plan: AnyPlan) -> list[str]:
    from freshet.gnn.any_plan import aggregated

    return [one.name for one in aggregated(plan) if one.synopsis.needs_same_bits]


def _refuse_any(plan: AnyPlan) -> None:
    if names := _needing_same_bits(plan):
        msg = (
            f"--processor any: {names[0]} keeps a maximum or minimum of a network's messages, which knows a neighbour "
            "that goes by the bits of its message; give a new job --processor portable, or export the job and start "
            "another one from that snapshot"
        )
        raise UsageError(msg)
