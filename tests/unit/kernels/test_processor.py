"""What a process computes with is told, compared, and chosen before numpy is loaded."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from freshet.kernels import processor
from freshet.kernels.processor import (
    PORTABLE_BLAS,
    ProcessorError,
    choose_blas,
    core_of,
    hold,
    running,
    runs_here,
)
from freshet.operators.warm_up import warm_up

ROOT = Path(__file__).resolve().parents[3]
JOB = {"blas": "OpenBLAS 0.3.27 SkylakeX", "kernels": "x86-64-v3", "libc": "glibc 2.36"}
HASWELL = {**JOB, "blas": "OpenBLAS 0.3.27 Haswell"}


@pytest.fixture
def avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without AVX-512, on which OpenBLAS has taken what fits it."""
    monkeypatch.setattr(processor, "_features", lambda: frozenset({"avx", "avx2", "fma"}))
    monkeypatch.setattr(processor, "running", lambda: HASWELL)


def told(program: str, **variables: str) -> list[str]:
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split("\n")[:-1]


def test_this_process_tells_what_it_computes_with() -> None:
    here = running()
    assert set(here) == {"blas", "kernels", "libc"} and all(here.values())
    hold(here)
    hold({})


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of kernels of x86-64")
def test_the_kernels_are_those_that_the_environment_names_before_numpy_is_loaded() -> None:
    program = (
        "import sys; from freshet.kernels.processor import running;"
        "assert 'numpy' not in sys.modules; print(running()['blas'])"
    )
    names = {core_of({"blas": told(program, OPENBLAS_CORETYPE=core)[0]}) for core in ("Sandybridge", "Nehalem")}
    assert names == {"Sandybridge", "Nehalem"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="targets of x86-64")
def test_numba_compiles_for_a_common_target_unless_told() -> None:
    program = "from freshet.kernels.processor import running; print(running()['kernels'])"
    assert told(program) == ["x86-64-v3" if runs_here("haswell") else "x86-64"]
    assert told(program, NUMBA_CPU_NAME="nehalem") == ["nehalem"]


@pytest.mark.parametrize("name", ["blas", "kernels", "libc"])
def test_anything_else_is_refused(name: str, avx2: None) -> None:
    with pytest.raises(ProcessorError, match=r"the job computes with .* this process with .*--processor any"):
        hold(HASWELL | {name: "another"})


def test_the_message_says_what_the_machine_lacks_or_how_to_start(avx2: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProcessorError, match=r"Use a machine that has what SkylakeX needs \(avx512f"):
        hold(JOB)
    monkeypatch.setattr(processor, "running", lambda: JOB)
    with pytest.raises(ProcessorError, match="with OPENBLAS_CORETYPE=Haswell in its environment"):
        hold(HASWELL)
    with pytest.raises(ProcessorError, match="Go on where these are the same"):
        hold(JOB | {"libc": "glibc 2.31"})


def test_kernels_that_do_not_run_here_are_not_chosen(avx2: None) -> None:
    environ: dict[str, str] = {}
    choose_blas("SkylakeX", environ)
    choose_blas("", environ)
    assert environ == {}
    choose_blas("Haswell", environ)
    assert environ == {"OPENBLAS_CORETYPE": "Haswell"}


def test_another_blas_has_no_kernels_to_choose() -> None:
    assert core_of({"blas": "accelerate 1.0"}) == core_of({}) == ""
    assert core_of(JOB) == "SkylakeX"
    assert set(PORTABLE_BLAS.values()) == {"Haswell", "ARMV8"}


def test_an_operator_that_would_compute_other_bits_does_not_begin() -> None:
    with pytest.raises(ProcessorError, match=r"OpenBLAS 0\.0\.0 Nothing"):
        warm_up({"model": "none", "out": "none", "parts": 1, "processor": {"blas": "OpenBLAS 0.0.0 Nothing"}})
