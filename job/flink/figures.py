"""Status of a job whose processes do not see its output folder, from Flink's metrics, and which checkpoints it retains.

Such processes write their status elsewhere. Whoever watches the job, or asks for its status, writes the same files from
what Flink has of each operator. They are some seconds older, and latencies are exact to a factor of two.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from freshet.files.json_file import write_json
from freshet.job.errors import JobFailed
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.rest import FlinkRest, FlinkRestError
from freshet.job.folder import layout
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.uris import is_remote
from freshet.operators.dataflow import PARTITIONER, SINK
from freshet.operators.output_folders import STATUS
from freshet.operators.telemetry.figures import NOTED_AND_ALL
from freshet.operators.telemetry.positions import POSITIONS_PREFIX
from freshet.operators.telemetry.recent import EVENTS_S
from freshet.operators.telemetry.status_file import (
    FROM_FLINK,
    LAST_STATUS,
    PROFILE_PREFIX,
    REASONS_PREFIX,
    SINK_PREFIX,
    StatusFile,
    bucket_of,
)

_RATE_S = 3 * EVENTS_S  # Flink's own values may be ten seconds old
_GAP_S = 60.0  # a longer time without a look is no streaming time
_OPERATOR = re.compile(r"\d+\.(?P<operator>[^.]+)\.freshet\.(?P<name>.+)")
_REASON = re.compile(r"reason\.(?P<reason>.+)\.rejected")
_BUCKET = re.compile(r"le\.(?P<bound>[^.]+)\.(?P<kind>applied|freshness)_seconds_bucket")
_OFFSET = re.compile(r".*\.topic\.(?P<topic>.+)\.partition\.(?P<partition>\d+)\.currentOffset")
_KINDS = {"applied": "applied_counts", "freshness": "latency_counts"}
_COUNTS = {(PARTITIONER, name) for name in ("events", "rejected", "epochs", "vertices", *NOTED_AND_ALL)} | {
    (SINK, "rows_changed")
}
_TRIM_EVERY_S = 60.0


def is_wanted(metric: str) -> bool:
    """Return whether a metric of a job's vertex is one that status files are made of."""
    found = _OPERATOR.fullmatch(metric)
    if found is None:
        return _OFFSET.fullmatch(metric) is not None
    name = found["name"]
    at = found["operator"], name
    return at in _COUNTS or bool(_REASON.fullmatch(name)) or (at[0] == SINK and bool(_BUCKET.fullmatch(name)))


def is_out_seen(out: Path) -> bool:
    """Return whether the processes of the present attempt write to the output folder."""
    return any((out / STATUS).glob(f"{PROFILE_PREFIX}*.json"))


def look(out: Path, rest: FlinkRest, parts: int, sources: Iterable[str]) -> bool:
    """Write the status of a job from Flink's metrics, if its processes do not do so; whether it was written."""
    if is_out_seen(out):
        return False
    try:
        values = rest.metrics(is_wanted)
    except FlinkRestError:
        return False
    now_s, figures = time.time(), figures_of(values)
    if "epochs" not in figures["counts"] or is_out_seen(out):
        return False
    _write_sinks(out, parts, figures, now_s)
    reasons = {"reasons": figures["reasons"], "read": figures["counts"].get("events", 0)}
    reasons["noted"] = {name: figures["counts"].get(name, 0) for name in NOTED_AND_ALL}
    StatusFile(out, REASONS_PREFIX).write({**reasons, **_marks(now_s)}, now_s * 1e3)
    for source in sources:
        topic = re.sub(r"[^\w-]", "_", source.rpartition("/")[2])
        offsets = [(partition, at, int(now_s * 1e3)) for partition, at in figures["offsets"].get(topic, {}).items()]
        if offsets:
            name = f"{POSITIONS_PREFIX}{list(sources).index(source)}"
            StatusFile(out, name).write({"source": source, "next": offsets, FROM_FLINK: True}, now_s * 1e3)
    return True


def figures_of(values: Mapping[str, float]) -> dict[str, Any]:
    """Return counts by name, reasons, latencies (by kind: number up to each bound in seconds) and offsets by topic."""
    counts: dict[str, int] = {}
    reasons: dict[str, int] = {}
    latencies: dict[str, dict[float, int]] = {}
    offsets: dict[str, dict[int, int]] = {}
    for metric, value in values.items():
        if (found := _OPERATOR.fullmatch(metric)) is not None:
            name = found["name"]
            if (reason := _REASON.fullmatch(name)) is not None:
                reasons[reason["reason"].replace("_", " ")] = int(value)
            elif (bucket := _BUCKET.fullmatch(name)) is not None:
                bounds = latencies.setdefault(bucket["kind"], {})
                bound = float(bucket["bound"].replace("_", ".").replace("+Inf", "inf"))
                bounds[bound] = bounds.get(bound, 0) + int(value)
            else:
                counts[name] = counts.get(name, 0) + int(value)
        elif (found := _OFFSET.fullmatch(metric)) is not None and value >= 0:
            offsets.setdefault(re.sub(r"[^\w-]", "_", found["topic"]), {})[int(found["partition"])] = int(value) + 1
    return {"counts": counts, "reasons": reasons, "latencies": latencies, "offsets": offsets}


def _write_sinks(out: Path, parts: int, figures: Mapping[str, Any], now_s: float) -> None:
    """Write the status of each sink part: what is of all of them, and for the first what is a sum."""
    counts = figures["counts"]
    events, epoch = counts.get("events", 0), counts["epochs"]
    for part in range(parts):
        file = StatusFile(out, f"{SINK_PREFIX}{part}")
        before = file.read()
        then_s = float(before.get("time", now_s))
        since = before.get("events_before", (then_s, before.get("events", events)))
        if now_s - since[0] > _RATE_S and then_s > since[0]:
            since = then_s, before.get("events", events)
        gap_s = now_s - then_s
        seconds = float(before.get("seconds", 0.0)) + (gap_s if 0 < gap_s < _GAP_S else 0.0)
        of_sum = figures if part == 0 else {"latencies": {}}
        fields = {
            "part": part,
            "epoch": epoch,
            "visible": epoch,
            "rows": counts.get("rows_changed", 0) if part == 0 else 0,
            "events": events,
            "rejected": counts.get("rejected", 0),
            "vertices": counts.get("vertices", 0),
            "seconds": round(seconds, 3),
            "events_before": since,
            **{field: _buckets(of_sum["latencies"].get(kind, {})) for kind, field in _KINDS.items()},
        }
        file.write({**fields, **_marks(now_s)}, now_s * 1e3)


def _marks(now_s: float) -> dict[str, Any]:
    """Return the fields that say how the status came about; nobody need wait for another one."""
    return {"time": now_s, LAST_STATUS: True, FROM_FLINK: True}


def _buckets(bounds: Mapping[float, int]) -> tuple[list[int], list[int]]:
    """Return latencies by bucket: those between two bounds are in the middle of both."""
    counts: dict[int, int] = {}
    before, below_s = 0, 0.0
    for bound_s, total in sorted(bounds.items()):
        middle_s = below_s if np.isinf(bound_s) else bound_s / 2**0.5
        bucket = bucket_of(middle_s * 1e3)
        if total > before:
            counts[bucket] = counts.get(bucket, 0) + total - before
        before, below_s = max(before, total), bound_s
    return sorted(counts), [counts[bucket] for bucket in sorted(counts)]


class RetainedNotice:
    """Takes the time since when retained checkpoints began to the cut log: by a file, or by trimming its topic."""

    def __init__(self, spec: JobSpec) -> None:
        cuts: dict[str, Any] = spec.stage.get("cuts") or {}
        self.is_wanted = is_remote(spec.checkpoint_dir)
        self._file = spec.checkpoints / layout.RETAINED
        self._topic, self._keeps = str(cuts.get("topic") or ""), bool(cuts.get("keep_cuts"))
        self._job, self._properties = str(spec.stage.get("job_id")), spec.kafka_properties
        self._trimmer: Any = None
        self.thread: threading.Thread | None = None
        self._next_s = 0.0

    def tell(self, since_ms: float) -> None:
        """Report the start of the oldest retained checkpoint."""
        if not self._topic:
            write_json(self._file, {"since_ms": since_ms})
            return
        is_busy = self.thread is not None and self.thread.is_alive()
        if self._keeps or is_busy or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _TRIM_EVERY_S
        # Brokers may be silent for a while, and who watches the job must not wait.
        self.thread = threading.Thread(target=self._trim, args=(since_ms,), name="freshet-trim", daemon=True)
        self.thread.start()

    def _trim(self, since_ms: float) -> None:
        from kafka.errors import KafkaError

        from freshet.job.kafka.cut_topic import CutTrimmer

        if self._trimmer is None:
            properties = ClientProperties(self._properties)
            self._trimmer = CutTrimmer(KafkaAddress.parse(self._topic), properties, self._job)
        try:
            self._trimmer.trim(since_ms)
        except (KafkaError, OSError, JobFailed):  # what is left goes the next time
            return
