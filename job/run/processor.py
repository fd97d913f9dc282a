"""Which processor a job computes for: chosen before numpy is loaded, recorded, and kept when it is resumed."""

from __future__ import annotations

import platform

from gnn.processor import PORTABLE_BLAS, Processor, ProcessorError, choose_blas, core_of, hold, running
from job.errors import UsageError
from job.folder.run_file import read_run
from job.options.run_config import RunConfig

PORTABLE, ANY = "portable", "any"


def settle(config: RunConfig) -> None:
    """Have OpenBLAS take the job's kernels in this process and its children; call it before anything loads numpy.

    A job that goes on takes those that it began with, whatever the environment says, if this processor has them.
    """
    if config.processor == PORTABLE:
        choose_blas(PORTABLE_BLAS.get(platform.machine(), ""))
    elif config.resume and config.processor is None:
        choose_blas(core_of(read_run(config.out).get("processor", {})))


def of_new_job(config: RunConfig) -> Processor:
    """What a new job computes with, from now on; nothing where it may be any.

    Raises: UsageError when the portable kernels are asked for and not there.
    """
    if config.processor == ANY:
        return {}
    here = running()
    wanted = PORTABLE_BLAS.get(platform.machine())
    if config.processor == PORTABLE and core_of(here) != wanted:
        msg = (
            f"--processor portable: got {here['blas']}, expected OpenBLAS's {wanted} kernels, which this machine or "
            "numpy does not have; take --processor host"
        )
        raise UsageError(msg)
    return here


def of_resumed_job(config: RunConfig, recorded: Processor) -> Processor:
    """What a job goes on with.

    Raises: UsageError when this process computes with something else than the job has.
    """
    if config.processor == ANY:
        return {}
    try:
        hold(recorded)
    except ProcessorError as error:
        msg = f"--resume: {error}"
        raise UsageError(msg) from None
    return recorded or running()
