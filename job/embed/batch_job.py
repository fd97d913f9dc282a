"""`freshet embed` as a PyFlink batch job: waves of steps that may go side by side.

    numbers -> place the graph -> barrier -> storage0, part by part -> barrier -> ... -> sink, part by part
    numbers -> prepare the graph -> barrier -> layer 1, range by range -> barrier -> ... -> the embeddings' files

The first is for streaming, the second for serving: there a step is a pass over a range of destinations. Flink deals the
steps of a wave to its slots, keeps what they say between waves (blocking exchanges), and does again what failed; rows
go through files, which all slots must see. A step that was finished before is not done twice.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from freshet.job.console import say
from freshet.job.embed.step import StepSettings, failure_of, steps_of
from freshet.job.errors import EXIT_FAILED, EXIT_SIGTERM, EXIT_USAGE, JobFailed
from freshet.job.flink.dataflow import discard, named
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.runtime import FlinkRun
from freshet.job.machine.processes import stop_signals
from freshet.job.machine.python_path import python_environ
from freshet.operators.embed.files import FinishedSteps
from freshet.operators.snapshot.reader import Snapshot

if TYPE_CHECKING:
    from pyflink.datastream import StreamExecutionEnvironment

_FLINK = "flink"  # in the work folder: logs, and what Flink needs meanwhile
_RESTARTS = 20
_NO_ROOM = "No space left on device"
_FINAL = re.compile(rf": exit ({EXIT_USAGE}|{EXIT_FAILED}): |{_NO_ROOM}")  # what no attempt will mend
_HEAP_MB, _MANAGED_MB, _NETWORK_MB = 512, 64, 64


@dataclass(frozen=True)
class Spread:
    """Distribution of the steps of a wave: the number at a time, in the job's own Flink or a cluster (HOST:PORT).

    `flink` are Flink's own options of the user, with the secrets in them.
    """

    parallelism: int = 1
    cluster: str | None = None
    flink: Mapping[str, str] = field(default_factory=dict, repr=False)


def run_on_flink(
    settings: StepSettings, snapshot: Snapshot, spread: Spread, progress: Callable[[str], None]
) -> tuple[Any, int | None]:
    """Run the steps, or the remaining ones, on Flink; `settings.memory` is the memory of one step.

    Returns the report, and the peak of the private memory of all processes, in bytes, if all are on this machine.
    Raises: SnapshotError for bad rows; EmbedError or JobFailed for a full disk or a damaged file.
    """
    made = steps_of(settings, snapshot)
    resumed = made.begin()
    settings.failed.unlink(missing_ok=True)
    settings.write()
    waves, out, memory = made.waves, Path(settings.work) / _FLINK, SampledMemory()

    def look() -> None:
        if (error := failure_of(settings)) is not None:  # Flink would try again and again
            raise error
        memory.sample()
        progress(_how_far(FinishedSteps(settings.folder), waves))

    run = FlinkRun(_spec(out, spread), lambda env, _: draw(env, waves, settings, spread.parallelism))
    try:
        _run(run, look)
    except JobFailed as failed:
        raise failure_of(settings) or _with_way_out(failed, settings) from None
    peak = memory.peak if spread.cluster is None else None  # the processes of a cluster are not below this one
    return made.report(resumed=resumed), peak


def of_runtime(spread: Spread | None, peak: int | None) -> dict[str, Any]:
    """Return fields of the JSON line: the runtime, and its peak memory if that is known."""
    if spread is None:
        return {"runtime": "local"}
    known = {} if peak is None else {"memory_peak": peak}
    return {"runtime": "flink", "parallelism": spread.parallelism} | known


def _run(run: FlinkRun, look: Callable[[], None]) -> None:
    """Run the job to its end, or till a signal; a savepoint is not needed, as finished steps are kept."""

    def look_and_leave() -> None:
        if caught:
            raise KeyboardInterrupt if caught[0] == signal.SIGINT else SystemExit(EXIT_SIGTERM)
        look()

    def tell_or_leave(cause: str) -> None:
        if _FINAL.search(cause):  # a step on a full disk has no room to leave word
            raise JobFailed(cause)
        say(f"{cause}; Flink does it again", "warning")

    with stop_signals() as caught:
        try:
            run.start()
            run.wait(look_and_leave, tell_or_leave)
        except BaseException:
            run.cancel()
            raise
        finally:
            run.close()


def _with_way_out(failed: JobFailed, settings: StepSettings) -> JobFailed:
    if _NO_ROOM not in str(failed):
        return failed
    return JobFailed(f"{settings.work}: no room left on the disk ({failed}); free some and run the same command again")


def draw(env: StreamExecutionEnvironment, waves: list[list[str]], settings: StepSettings, parallelism: int) -> None:
    """Draw the waves on an environment."""
    from pyflink.common import WatermarkStrategy
    from pyflink.common.typeinfo import Types
    from pyflink.datastream.connectors.number_seq import NumberSequenceSource

    from freshet.operators.flink.step_shells import BarrierShell, FirstShell, StepShell

    where = f"PYTHONPATH={python_environ()['PYTHONPATH']}"
    command = ["env", where, sys.executable, "-P", "-m", "freshet.job.embed.step", str(settings.path)]
    source = NumberSequenceSource(0, len(waves[0]) - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "steps", type_info=Types.LONG())
    stream = named(named(numbers, "steps", 1).process(FirstShell(waves[0]), Types.STRING()), "first", 1)
    for number, wave in enumerate(waves):
        name = _name(wave)
        spread = min(parallelism, len(wave))
        stream = named(stream.rebalance().process(StepShell(name, command), Types.STRING()), name, spread)
        following = waves[number + 1] if number + 1 < len(waves) else []
        barrier = stream.rebalance().process(BarrierShell(wave, following), Types.STRING())
        stream = named(barrier, f"all of {name}", 1)
    discard(stream)


def _spec(out: Path, spread: Spread) -> JobSpec:
    options = {
        "execution.runtime-mode": "BATCH",
        "execution.batch-shuffle-mode": "ALL_EXCHANGES_BLOCKING",
        "jobmanager.scheduler": "Default",  # the adaptive one would choose how many slots a wave gets
        "task.cancellation.timeout": "0",  # a step that is under way is waited for; Flink would end the TaskManager
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": str(_RESTARTS),
        "restart-strategy.fixed-delay.delay": "500 ms",
    }
    if spread.cluster is None:  # steps have processes of their own: slots of one process will do
        options["taskmanager.numberOfTaskSlots"] = str(spread.parallelism)
    return JobSpec(
        name="freshet embed",
        out=str(out),
        layers=1,
        cluster=spread.cluster,
        checkpoint_interval_ms=0,
        heap_mb=_HEAP_MB,
        managed_mb=_MANAGED_MB,
        network_mb=_NETWORK_MB,
        options=options,
        user_options=dict(spread.flink),
    )


def _how_far(journal: FinishedSteps, waves: list[list[str]]) -> str:
    """The first wave that is not done."""
    for number, wave in enumerate(waves, 1):
        done = sum(journal.get(name) is not None for name in wave)
        if done < len(wave):
            return f"wave {number} of {len(waves)}: {_name(wave)}, {done} of {len(wave)} done"
    return f"{len(waves)} waves done"


def _name(wave: list[str]) -> str:
    """Return the name of the operator whose parts are the steps."""
    return wave[0].rpartition("-")[0] or wave[0]


class SampledMemory:
    """The private memory of this process and all below it, at most, as it is sampled."""

    def __init__(self) -> None:
        self.peak, self._next = 0, 0.0

    def sample(self) -> None:
        """Look, twice a second at most."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next, total, root = now + 0.5, 0, psutil.Process()
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_full_info().uss
        self.peak = max(self.peak, total)
