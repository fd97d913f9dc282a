"""A job goes on with the bits that it began with, whatever kernels OpenBLAS would take by itself."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from freshet.files.json_file import write_json
from freshet.kernels.processor import BLAS_VARIABLE, runs_here
from tests.support.runs.jobs import Job, assert_same_rows, make_input, read_log

LOCAL = ("--runtime", "local", "--epoch-events", "20", "--epoch-ms", "0")
SLOW = {"slow": {"parser": 150}, "chunk": 100, "lull": 20}  # so that it is killed in mid-stream
AVX2, OLD = "Haswell", "Prescott"  # not the same order of sums

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not runs_here(AVX2), reason=f"needs a processor that runs OpenBLAS's {AVX2}"
)


def test_a_killed_job_goes_on_with_the_same_bits_or_is_refused(tmp_path: Path) -> None:
    given = make_input(tmp_path / "input", 6_000, snapshot=True)
    job = Job(given, tmp_path / "out", {BLAS_VARIABLE: AVX2})
    whole = Job(given, tmp_path / "whole", {BLAS_VARIABLE: AVX2})
    try:
        job.start(*LOCAL, "--checkpoint-interval", "200ms", faults=SLOW)
        job.until_epoch(30)
        job.kill()
        job.environ = {BLAS_VARIABLE: OLD}
        assert read_log(job.out).last < 290
        job.done("--resume", "latest")
        whole.done(*LOCAL)
        assert_same_rows(read_log(job.out), read_log(whole.out))

        settings = job.out / "job" / "job.json"
        saved = json.loads(settings.read_text())
        recorded = json.loads((job.out / "run.json").read_text())["processor"]
        assert saved["settings"]["processor"] == recorded
        assert recorded["blas"].endswith(AVX2) and recorded["libc"] and recorded["kernels"]
        saved["settings"]["processor"]["blas"] = f"OpenBLAS 0.0.1 {AVX2}"
        write_json(settings, saved)
        refused = job.run("--resume", "latest")
        assert refused.code == 2
        assert f"the job computes with blas OpenBLAS 0.0.1 {AVX2}" in refused.last_line
        assert "--processor any" in refused.last_line
        job.done("--resume", "latest", "--processor", "any")
    finally:
        job.end()
        whole.end()


def test_portable_kernels_can_be_asked_for(tmp_path: Path) -> None:
    job = Job(make_input(tmp_path / "input", 50), tmp_path / "out", {BLAS_VARIABLE: OLD})
    job.done(*LOCAL, "--processor", "portable")
    assert json.loads((job.out / "run.json").read_text())["processor"]["blas"].endswith(AVX2)
    job.end()
