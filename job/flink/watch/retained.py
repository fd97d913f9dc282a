"""Tells the cut log which checkpoints are retained in a store that the job's machines can't look into."""

from __future__ import annotations

import threading
import time
from typing import Any

from freshet.files.json_file import write_json
from freshet.job.errors import JobFailed
from freshet.job.flink.job_spec import JobSpec
from freshet.job.folder import layout
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.uris import is_remote

_TRIM_EVERY_S = 60.0


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
