"""Brings keyed state out of a savepoint or checkpoint: a small bounded Flink job that is restored from it.

Only Flink can read its own files for certain, so Flink does: operators with the uids of the job's own write what each
part holds to files, and the rest of the job's state is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from freshet.job.flink.dataflow import discard, keyed, named
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.pipeline import part_keys
from freshet.operators.dataflow import PARTITIONER

if TYPE_CHECKING:
    from pyflink.datastream import StreamExecutionEnvironment


def save_entries(
    state: str, backend: str, parts: int, operators: Sequence[str], work: Path, flink: Mapping[str, str]
) -> None:
    """Write the entries of each part of these operators to `work`/OPERATOR-PART.

    `flink` are Flink's own options, by which it reaches the store of the state.
    Raises: JobFailed.
    """
    from freshet.job.flink.runtime import FlinkRun

    spec = JobSpec(
        name="freshet-export",
        out=str(work / "flink"),
        parts=parts,
        layers=1,
        state_backend=backend,  # type: ignore[arg-type]
        checkpoint_interval_ms=0,
        restarts=0,
        resume=state,
        user_options=dict(flink),
        options={"execution.state-recovery.ignore-unclaimed-state": "true"},
    )
    run = FlinkRun(spec, partial(_draw, operators=operators, folder=str(work)))
    try:
        run.start()
        run.wait()
    finally:
        run.close()


def _draw(env: StreamExecutionEnvironment, spec: JobSpec, operators: Sequence[str], folder: str) -> None:
    from pyflink.common import WatermarkStrategy
    from pyflink.common.typeinfo import Types
    from pyflink.datastream.connectors.number_seq import NumberSequenceSource

    from freshet.operators.flink.savepoint_shells import EntriesShell, KeysShell
    from freshet.operators.flink.shell import PARTITIONER_KEY, element_type

    for operator in operators:
        keys = [PARTITIONER_KEY] if operator == PARTITIONER else part_keys(spec.parts, spec.max_parallelism)
        source, never = NumberSequenceSource(0, len(keys) - 1), WatermarkStrategy.no_watermarks()
        numbers = env.from_source(source, never, f"{operator}-parts", type_info=Types.LONG())
        elements = named(numbers, f"{operator}-parts", 1).process(KeysShell(keys), element_type())
        entries = keyed(named(elements, f"{operator}-keys", 1)).process(
            EntriesShell(operator, keys, folder), element_type()
        )
        discard(named(entries, operator, 1), f"{operator}-end")
