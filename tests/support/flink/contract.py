"""Runs the backend contract inside a real Flink job, where alone keyed state can be read: `python -m ... OUT BACKEND`.

Each test gets a key of its own, and so a map state without entries. OUT/results.json says what failed.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from pyflink.common import WatermarkStrategy
from pyflink.common.typeinfo import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.connectors.number_seq import NumberSequenceSource

from freshet.job.flink.gateway import start_gateway, stop_gateway
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.options import flink_options
from freshet.job.flink.runtime import environment
from freshet.state.flink_backend import FlinkBackend
from tests.unit.state.backend_contract import BackendContract

TESTS = sorted(name for name in vars(BackendContract) if name.startswith("test_"))


class Contract(KeyedProcessFunction):
    """Runs test number `key`."""

    def __init__(self, out: str) -> None:
        self.out = Path(out)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.backend = FlinkBackend(runtime_context)

    def process_element(self, value: int, ctx: Any) -> Any:
        name = TESTS[value]
        try:
            getattr(BackendContract(), name)(self.backend)
            error = ""
        except Exception:
            error = traceback.format_exc()
        (self.out / f"{name}.txt").write_text(error)
        yield value


def main(out: Path, backend: str) -> None:
    spec = JobSpec(out=str(out), layers=1, parts=1, state_backend=backend, heap_mb=512)
    for folder in (spec.checkpoints, out / "tmp"):
        folder.mkdir(parents=True)
    java = start_gateway(spec.logs, spec.tmp, spec.heap_mb)
    try:
        env = environment(flink_options(spec))
        source = NumberSequenceSource(0, len(TESTS) - 1)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", type_info=Types.LONG())
        keyed = numbers.key_by(lambda number: number, key_type=Types.LONG())
        keyed.process(Contract(str(out)), Types.LONG()).print()
        env.execute("backend contract")
    finally:
        stop_gateway(java)
    results = {path.stem: path.read_text() for path in out.glob("*.txt")}
    (out / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
