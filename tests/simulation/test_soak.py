"""The soak itself: what grows is said, and a job that is restarted again and again is where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.simulation.soaked import Sample, judge, soak


def sample(epoch: int, **figures: float) -> Sample:
    plain = {
        "memory_mib": 250.0,
        "libraries_mib": 100.0,
        "start_s": 0.5,
        "start_cpu_s": 0.2,
        "files": 40,
        "open_files": 16,
    }
    plain |= {"history_files": 3, "history_bytes_per_epoch": 9.0} | figures
    return Sample(epoch, disk={"cuts": int(plain.pop("cuts", 1 << 20))}, **plain)  # type: ignore[arg-type]


def test_what_is_flat_did_not_grow() -> None:
    samples = [sample(epoch, memory_mib=250 + epoch % 7, cuts=(epoch % 3) << 20) for epoch in range(1, 41)]
    verdict = judge(samples)
    assert verdict.grew == []
    assert verdict.first.keys() == verdict.second.keys() >= {"memory_mib", "start_cpu_s", "files", "cuts_bytes"}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("memory_mib", 5),
        ("start_cpu_s", 0.1),
        ("files", 3),
        ("open_files", 1),
        ("history_bytes_per_epoch", 0.5),
        ("cuts", 40_000),
    ],
)
def test_what_grows_is_named(name: str, step: float) -> None:
    start = {"memory_mib": 250.0, "start_cpu_s": 0.2, "files": 40, "open_files": 16, "cuts": 1 << 16}.get(name, 9.0)
    samples = [sample(epoch, **{name: start + step * epoch}) for epoch in range(1, 41)]
    assert judge(samples).grew == ["cuts_bytes" if name == "cuts" else name]


def test_a_short_one_with_restarts(tmp_path: Path) -> None:
    samples = list(soak(tmp_path / "job", 1600, samples=3, step_ms=70.0))
    assert [one.epoch for one in samples] == sorted(one.epoch for one in samples)
    assert samples[-1].epoch >= 1600
    assert {"cuts", "state", "dead_letters"} <= samples[-1].disk.keys()
    assert samples[-1].history_files >= 1
