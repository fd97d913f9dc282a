"""Whatever determines the last bits of a result besides the program: BLAS kernels, numba's target, the C library.

OpenBLAS has a set of kernels for each generation of processors, which sum in different orders. numba's target never
changes a sum (fastmath serves only to multiply and add in one instruction, and those products are compared with BLAS:
gnn/numerics/few_products.py), but it is fixed too, so that compiled kernels can move between machines. exp, tanh and
erf are the C library's. numpy's own loops are used only where IEEE 754 decides every bit.

Nothing that loads numpy is imported at the top: OpenBLAS reads its environment variable when numpy is loaded.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, MutableMapping
from functools import lru_cache

from freshet.errors import InputError

Processor = Mapping[str, str]

BLAS_VARIABLE = "OPENBLAS_CORETYPE"
# What every server processor of the last ten years has.
PORTABLE_BLAS = {"x86_64": "Haswell", "aarch64": "ARMV8", "arm64": "ARMV8"}
_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
# What OpenBLAS's newer kernels need; the older ones run everywhere.
_NEEDS = {
    "sandybridge": ("avx",),
    "bulldozer": ("avx", "fma4"),
    "piledriver": ("avx", "fma4"),
    "steamroller": ("avx", "fma4"),
    "excavator": ("avx2", "fma4"),
    "haswell": ("avx2", "fma"),
    "zen": ("avx2", "fma"),
    "skylakex": _AVX512,
    "cooperlake": (*_AVX512, "avx512bf16"),
    "sapphirerapids": (*_AVX512, "avx512bf16"),
    "neoversev1": ("sve",),
    "neoversen2": ("sve",),
    "armv8sve": ("sve",),
    "a64fx": ("sve",),
}


class ProcessorError(InputError):
    """This process would compute other bits than the job has so far; the message says what to do."""


@lru_cache(maxsize=1)
def _features() -> frozenset[str]:
    from llvmlite import binding

    return frozenset(name for name, there in binding.get_host_cpu_features().items() if there)


def compile_for_fixed_target() -> None:
    """Let numba compile for a common processor of this architecture; what `NUMBA_CPU_NAME` says stays."""
    import numba

    if numba.config.CPU_NAME is None:
        x86 = "x86-64-v3" if _features().issuperset(_V3) else "x86-64"
        numba.config.CPU_NAME = x86 if platform.machine() in ("x86_64", "AMD64") else "generic"
        numba.config.CPU_FEATURES = ""


@lru_cache(maxsize=1)
def running() -> Processor:
    """Return the BLAS kernels, numba target and C library of this process."""
    import numba

    from freshet.kernels.blas import blas_name

    compile_for_fixed_target()
    names = os.confstr_names if hasattr(os, "confstr_names") else {}
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in names else None
    kernels = " ".join(filter(None, (numba.config.CPU_NAME, numba.config.CPU_FEATURES)))
    return {"blas": blas_name(), "kernels": kernels, "libc": libc or platform.platform(terse=True)}


def hold(job: Processor, *, or_any: bool = True) -> None:
    """Compare with what a job computes with; a job that has nothing written down may run anywhere.

    `or_any`: the message names `--processor any`.

    Raises: ProcessorError when this process computes with something else.
    """
    here = running() if job else {}
    if here != job:
        all_the_same = "; or go on all the same with --resume ... --processor any" if or_any else ""
        msg = (
            f"the job computes with {named(job)}, this process with {named(here)}: the last bits of rows would "
            f"differ. {_cure(job, here)}{all_the_same}"
        )
        raise ProcessorError(msg)


def named(processor: Processor) -> str:
    """Describe a processor, for people."""
    return ", ".join(f"{name} {value}" for name, value in processor.items()) or "nothing that was recorded"


def core_of(processor: Processor) -> str:
    """OpenBLAS's name of its kernels, empty where it is another BLAS."""
    name, _, core = processor.get("blas", "").rpartition(" ")
    return core if name.startswith("OpenBLAS") else ""


def runs_here(core: str) -> bool:
    """Return whether this processor supports OpenBLAS's kernels of this name."""
    return _features().issuperset(_NEEDS.get(core.lower(), ()))


def choose_blas(core: str, environ: MutableMapping[str, str] | None = None) -> None:
    """Let OpenBLAS take these kernels, where numpy is loaded from now on: in this process or its children."""
    if core and runs_here(core):
        (os.environ if environ is None else environ)[BLAS_VARIABLE] = core


def _cure(job: Processor, here: Processor) -> str:
    core = core_of(job)
    others = [name for name in job if name != "blas" and job[name] != here.get(name)]
    if others or not core or core_of(here) == core:
        return "Go on where these are the same"
    if runs_here(core):
        return f"Start this process (a TaskManager, say) with {BLAS_VARIABLE}={core} in its environment"
    return f"Use a machine that has what {core} needs ({', '.join(_NEEDS[core.lower()])})"
