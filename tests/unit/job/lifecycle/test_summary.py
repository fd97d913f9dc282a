from types import SimpleNamespace

import orjson
import pytest

from freshet.job.lifecycle import summary as summary_module
from freshet.job.lifecycle.summary import StartUp, closing_summary, profile, progress, remarks
from freshet.operators.telemetry.figures import FEATURED
from freshet.operators.telemetry.status_file import PROFILE_PREFIX, bucket_of


def part(folder, number, **fields):
    status = {"epoch": 0, "visible": 0, "rows": 0, "events": 0, "rejected": 0, "vertices": 0, "seconds": 0.0}
    status |= {"latency_counts": [[], []], "applied_counts": [[], []]} | fields
    (folder / "status").mkdir(exist_ok=True)
    (folder / f"status/sink-{number}.json").write_bytes(orjson.dumps(status))


def test_nothing_has_happened_yet(tmp_path):
    summary = closing_summary(tmp_path)
    assert summary["events"] == summary["epochs"] == summary["rows"] == 0
    assert summary["latency_ms_p50"] is summary["applied_ms_p99"] is summary["events_per_s"] is None
    part(tmp_path, 0)
    assert closing_summary(tmp_path) == summary


def test_parts_are_put_together(tmp_path):
    common = {"events": 100, "rejected": 3, "vertices": 7}
    counts = [[bucket_of(5.0)], [98]]
    applied = [[bucket_of(0.5)], [9]]
    part(tmp_path, 0, epoch=4, rows=10, seconds=2.0, latency_counts=counts, applied_counts=applied, **common)
    part(
        tmp_path,
        1,
        epoch=3,
        rows=20,
        seconds=1.9,
        latency_counts=[[bucket_of(5.0), bucket_of(80.0)], [97, 5]],
        **common,
    )
    assert progress(tmp_path)["epoch"] == 3
    summary = closing_summary(tmp_path)
    assert summary["latency_ms_p50"] == pytest.approx(5, rel=0.05)
    assert summary["latency_ms_p99"] == pytest.approx(80, rel=0.05)
    assert summary["applied_ms_p50"] == summary["applied_ms_p99"] == pytest.approx(0.5, rel=0.05)
    for name in ("latency_ms_p50", "latency_ms_p99", "applied_ms_p50", "applied_ms_p99"):
        del summary[name]
    expected = {
        "events": 100,
        "rejected": 3,
        "reasons": {},
        "letters_dropped": 0,
        "epochs": 4,
        "seconds": 2.0,
        "events_per_s": 50.0,
    }
    expected |= dict.fromkeys(("replaced", "unchanged", "nothing_deleted", "tombstones_skipped"), 0)
    assert summary == expected | {"vertices": 7, "rows": 30}


def test_a_status_that_lacks_fields_is_left_out_as_one_that_is_no_json(tmp_path, caplog):
    part(tmp_path, 0, epoch=4, visible=3, events=100, rows=10, seconds=2.0, vertices=7)
    whole = closing_summary(tmp_path)
    damaged = tmp_path / "status/sink-1.json"
    for content in (b'{"epoch": 9}', b"{}", b"[]", b"9", b'{"epoch"'):
        damaged.write_bytes(content)
        caplog.clear()
        assert closing_summary(tmp_path) == whole
        assert f"{damaged}: not a status file, left out" in caplog.text
    (tmp_path / "status/profile-sink-0.json").write_bytes(b'{"operator": "sink"}')
    assert profile(tmp_path)["profile_seconds"] == {}


@pytest.mark.parametrize(("featured", "vertices", "said"), [((0, 0), 7, True), ((0, 1), 7, False), ((0, 0), 0, False)])
def test_features_that_are_all_zeros_are_hard_to_miss(tmp_path, featured, vertices, said):
    part(tmp_path, 0, epoch=4, vertices=vertices)
    for task, one in enumerate(featured):
        told = {"figures": {"gauges": {FEATURED: one}}}
        (tmp_path / f"status/{PROFILE_PREFIX}storage0-{task}.json").write_bytes(orjson.dumps(told))
    summary = closing_summary(tmp_path)
    assert summary.get("zero_features", False) is said
    lines = "\n".join(remarks(tmp_path, summary)).splitlines()
    assert len(lines) > 2 if said else not lines
    if said:
        assert lines[0].startswith("WARNING: all features are zeros")


@pytest.mark.parametrize("set_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_while_a_job_starts(monkeypatch: pytest.MonkeyPatch, set_s: float) -> None:
    clocks = SimpleNamespace(wall=1000.0, own=70.0)
    monkeypatch.setattr(summary_module.psutil, "Process", lambda: SimpleNamespace(create_time=lambda: 990.0))
    fake = SimpleNamespace(time=lambda: clocks.wall, monotonic=lambda: clocks.own)
    monkeypatch.setattr(summary_module, "time", fake)
    start = StartUp()
    clocks.wall, clocks.own = clocks.wall + set_s + 5.0, clocks.own + 5.0
    assert start.reached("prepared") == 15.0
