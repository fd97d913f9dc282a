"""Common code of all shells: Flink functions that move bytes, timers and state between Flink and the stages.

An element of every stream is `Row(key, block)`, where key is the part's Flink key and block a `bytes`; it carries the
key with it from the start, so that no key selector in Python (a further operator per exchange) is needed.

A stage is built by a factory `module:function(config, operator, part)` on the worker thread of its subtask.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyflink.common import Row
from pyflink.common.typeinfo import TypeInformation, Types
from pyflink.datastream import KeyedProcessFunction, OutputTag, RuntimeContext

from freshet.operators.dataflow import PARTITIONER, SINK, TAIL, LayerTasks, Place, outlet_of
from freshet.operators.flink.metrics import OperatorMetrics
from freshet.operators.flink.neighbours import Mailbox, Neighbours, TaskAddress, is_token
from freshet.operators.flink.opening import counted_as_loading
from freshet.operators.flink.worker import Worker
from freshet.operators.initial.artifacts import with_local_files
from freshet.operators.outcome import Message, Outcome
from freshet.operators.output_folders import home_of
from freshet.operators.stage import KeyedStage, RejectingStage, RunningStage
from freshet.operators.telemetry.level import AnyLevel, Level
from freshet.operators.telemetry.load import LETTERS
from freshet.operators.telemetry.profile import Profile
from freshet.state.checksums.entries import SealedEntries
from freshet.state.flink_backend import FlinkBackend
from freshet.state.task_parts import subtask_of

PARTITIONER_KEY = 0
# The block that begins an attempt; no stage sends an empty block.
START = b""
# The Parser's block after the last chunk of a bounded input in a job that stays.
FINISH = b"\0"


def element_type() -> TypeInformation:
    """Return the type of every stream's element: (key, block)."""
    return Types.ROW([Types.INT(), Types.PICKLED_BYTE_ARRAY()])


def tail_tag() -> OutputTag:
    """Return the tag of the side output from a Storage to its Tail."""
    return OutputTag(TAIL, element_type())


def records_type() -> TypeInformation:
    """The type of a stream of blocks of Kafka records (see operators/record_blocks.py)."""
    return Types.ROW([Types.PRIMITIVE_ARRAY(Types.BYTE())])


def letters_tag() -> OutputTag:
    """Return the tag of the side output of rejected records, as blocks of Kafka records."""
    return OutputTag("letters", records_type())


def outlet_tag(kind: str) -> OutputTag:
    """Return the tag of the side output of a Sink's records of one of several kinds, as blocks of Kafka records."""
    return OutputTag(outlet_of(kind), records_type())


def load_factory(path: str) -> Any:
    """Return the callable named by `module:function`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


class Shell:
    """A worker, the factory and the way from a stage's messages to Flink's elements."""

    def __init__(
        self, operator: str, config: str, keys: list[int], receivers: Mapping[str, str], chained: Collection[str] = ()
    ) -> None:
        """Take plain data only: the function is pickled into the job graph.

        `config` is a JSON object with `factory`, `stage`, `out`, `logs` and `letters` (whether somebody takes the side
        output of rejected records), and `last_of_first` where the Sink may run in another process than the Partitioner:
        the last operator that runs beside that one. Of `stage` only `tasks` and `layer_tasks` are read here: how many
        parts each task of a Storage has (without them, one each). `keys` are those of the parts; a task is addressed by
        its first part's.
        `receivers` are the operators that messages go to, by kind (a Tail takes the side output); those of the kinds
        `chained` run in the same thread.
        """
        self.operator, self.config, self.keys = operator, config, keys
        self.receivers, self.chained = dict(receivers), tuple(chained)

    def open(self, runtime_context: RuntimeContext) -> None:
        """Start the worker; stages are built later, since keyed state can't be read here."""
        settings = json.loads(self.config)
        self._factory: str = settings["factory"]
        self._stage_config: dict[str, Any] = settings["stage"]
        self._last_of_first: str = settings.get("last_of_first", SINK)
        context = runtime_context._runtime_context  # PyFlink's own methods do not find these in thread mode
        task, self._job = context.getTaskInfo(), str(context.getJobInfo().getJobId().toHexString())
        self._attempt = int(task.getAttemptNumber())  # all tasks of a job start again together, and count alike
        out = Path(settings["out"])
        home = home_of(out, self._stage_config.get("job_id", ""))
        profile = self._profile = Profile(home, self.operator, int(task.getIndexOfThisSubtask()))
        self._outbox = profile.levels["outbox_bytes"] = Level()
        self._neighbours = Neighbours(self._job, self.receivers, self.chained, self._attempt)
        profile.levels |= self._waiting_elsewhere()
        self._metrics = OperatorMetrics(runtime_context, profile)
        errors = (Path(settings["logs"]) if home == out else home) / "python-errors.log"
        # While Flink's thread waits for the next operator, the file still has what waits here.
        self._idle_work: list[Callable[[], None]] = []  # must not hold this shell (see `Worker`)
        when_idle = partial(_when_idle, profile, self._neighbours, self._idle_work)
        self._worker: Any = Worker(self.operator, errors, when_idle)
        self._stages: dict[int, RunningStage] = {}
        self._tag = tail_tag() if TAIL in self.receivers else None
        self._letters_tag = letters_tag() if settings.get("letters") else None
        self._stage_config = with_local_files(self._stage_config, (), copy_by_flink)
        # Kernels that the first event would otherwise wait for.
        self._worker.call(_warm_up, self._factory, self._stage_config)
        self._worker.call(profile.write)  # nothing of an earlier attempt counts any more

    def close(self) -> None:
        """Close the stages and end the worker, once."""
        worker, self._worker = getattr(self, "_worker", None), None  # None where open() failed
        if worker is None:
            return
        try:
            for stage in self._stages.values():
                worker.call(stage.close)
            # The last blocks may not be taken yet; nobody would say any more when they are.
            self._profile.levels |= {name: Level(peak=level.peak) for name, level in self._waiting_elsewhere().items()}
            worker.call(self._profile.end)
        finally:
            self._stages = {}
            self._profile.stages = {}
            worker.stop()
            self._neighbours.close()

    def __del__(self) -> None:
        """Close what Flink drops without a word: it calls `close` at the end of the input, not after a stop or failure.

        The drop happens on the task's thread before the task has ended, so a stopped job's output is complete, and
        nothing of a failed attempt writes on into the next one. Only a function that was cancelled while it sent may
        go later.
        """
        self.close()

    def _waiting_elsewhere(self) -> dict[str, AnyLevel]:
        """Return the levels of memory that waits for the receivers of each kind, by name."""
        return {f"to_{kind}_bytes": level for kind, level in self._neighbours.levels.items()}

    def _build(self, part: int) -> Any:  # a stage of the kind that the operator is
        return self._worker.call(_make, self._factory, self._stage_config, self.operator, part)

    def _act(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Call a stage on the worker, and count the time."""
        profile, worker = self._profile, self._worker
        began, busy = time.perf_counter(), worker.busy_s
        result = worker.call(_sendable, self._neighbours, fn, *args)
        busy_s, (left_bytes, waited_s) = worker.busy_s - busy, self._neighbours.counted()
        profile.bytes_out += left_bytes
        profile.stage += busy_s - waited_s
        profile.emit += waited_s
        profile.hand_over += time.perf_counter() - began - busy_s
        profile.acts += 1
        if profile.is_due():
            worker.call(profile.write)
        self._metrics.update()
        return result

    def _events(self, blocks: Sequence[bytes]) -> Iterator[Any]:
        """A Parser's blocks, to the Partitioner."""
        began = time.perf_counter()
        self._profile.emits_since = began
        self._outbox.set(sum(map(len, blocks)))
        messages = self._worker.call(self._neighbours.sendable, [Message(PARTITIONER, 0, 0, block) for block in blocks])
        self._profile.bytes_out += self._neighbours.counted()[0]
        for message in messages:
            assert isinstance(message.block, bytes)
            if not is_token(message.block):
                self._profile.bytes_out += len(message.block)
            yield Row(PARTITIONER_KEY, message.block)
        self._outbox.set(0)
        self._emitted(began)

    def _emitted(self, since: float) -> None:
        """Count the time in which Flink took what was sent."""
        self._profile.emits_since = None
        self._profile.emit += time.perf_counter() - since

    def _letters(self, stage: RejectingStage) -> Iterator[Any]:
        """The records that the stage has rejected, where a topic gets them."""
        if self._letters_tag and stage.dead_letters and LETTERS not in self._profile.loads.places:
            self._profile.loads.places[LETTERS] = stage.dead_letters.traffic.sums
        for block in stage.dead_letters.take() if self._letters_tag and stage.dead_letters else ():
            self._profile.bytes_out += len(block)
            self._profile.bytes_away += len(block)
            yield self._letters_tag, Row(block)


def copy_by_flink(uri: str, path: Path) -> None:
    """Copy what a URI names to a new file, by Flink's file systems, as this process is configured to reach stores.

    It has to be called by a thread of Flink's.
    """
    from pemja import findClass

    flink_path = findClass("org.apache.flink.core.fs.Path")
    findClass("org.apache.flink.util.FileUtils").copy(flink_path(uri), flink_path(f"file://{path}"), False)


def set_timer(ctx: Any, wait_ms: int) -> None:
    """Have `on_timer` called in at most so long.

    At a multiple of the wait, so that timers of about the same time, and one that was restored with the state, are one.
    """
    ctx.timer_service().register_processing_time_timer((int(time.time() * 1e3) // wait_ms + 1) * wait_ms)


def _when_idle(profile: Profile, neighbours: Neighbours, more: Sequence[Callable[[], None]]) -> None:
    """Idle work of a worker."""
    neighbours.hear()
    profile.write_if_changed()
    for work in more:
        work()


def _sendable(neighbours: Neighbours, fn: Callable[..., Any], *args: Any) -> Any:
    """Call a stage's function and return its result, with blocks in Flink's form: tokens or bytes."""
    result = fn(*args)
    if isinstance(result, Outcome):
        result.messages = neighbours.sendable(result.messages)
    return result


def _make(factory: str, config: dict[str, Any], operator: str, part: int) -> Any:
    return load_factory(factory)(config, operator, part)


def _warm_up(factory: str, config: dict[str, Any]) -> None:
    """Call the function of the module `warm_up` beside the factory's, where there is one."""
    module = f"{factory.partition(':')[0].rpartition('.')[0]}.warm_up"
    if importlib.util.find_spec(module) is not None:
        importlib.import_module(module).warm_up(config)


def _preloaded(factory: str, config: dict[str, Any], operator: str, part: int) -> KeyedStage:
    stage = _make(factory, config, operator, part)
    stage.preload()
    return stage


def parts_of_subtask(parts: int, task: Any) -> list[int]:
    """The parts whose key lands on a subtask."""
    largest, parallelism = task.getMaxNumberOfParallelSubtasks(), task.getNumberOfParallelSubtasks()
    index = task.getIndexOfThisSubtask()
    return [part for part in range(parts) if subtask_of(part, parts, parallelism, largest) == index]


class KeyedShell(Shell, KeyedProcessFunction):
    """A shell with the keyed map state in which the pages of a stage's parts lie."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Declare the state, and load base images."""
        with counted_as_loading(self):
            super().open(runtime_context)
            self._backend = FlinkBackend(runtime_context)
            counts = (self._stage_config.get(name) or () for name in ("tasks", "layer_tasks"))
            tasks = LayerTasks.of_counts(len(self.keys), *counts)
            self._own = tasks.of(self.operator)
            first = {to: tasks.of(name).parts_of for to, name in self.receivers.items()}
            self._keys_of = {to: [self.keys[parts.start] for parts in parts_of] for to, parts_of in first.items()}
            self._sealed: dict[int, SealedEntries] = {}  # by part
            self._ready: dict[int, KeyedStage] = {}
            own = self._tasks_here = self._own_tasks(runtime_context._runtime_context.getTaskInfo())
            places = [str(Place(self.operator, part)) for task in own for part in self._own.parts_of[task]]
            self._stage_config = with_local_files(self._stage_config, places, copy_by_flink)
            for task in own:
                arguments = (self._factory, self._stage_config, self.operator, task)
                self._ready[task] = self._worker.call(_preloaded, *arguments)
            self._mailbox = Mailbox((TaskAddress(self._job, self.operator, task) for task in own), self._attempt)

    def close(self) -> None:
        """Close the stages, and the mailbox with them."""
        mailbox: Mailbox | None = getattr(self, "_mailbox", None)  # None where open() failed
        if mailbox is not None:
            mailbox.close()
        super().close()

    def _own_tasks(self, info: Any) -> list[int]:
        """Return the tasks of this operator on this subtask.

        Raises: RuntimeError when a task is spread over subtasks: the job does not run as configured.
        """
        here = parts_of_subtask(len(self.keys), info)
        own = [task for task, parts in enumerate(self._own.parts_of) if parts.start in here]
        if [part for task in own for part in self._own.parts_of[task]] != here:
            msg = f"{self.operator}: parts {here} are on this subtask, expected whole tasks of {self._own.counts} parts"
            raise RuntimeError(msg)
        return own

    def _restored(self, task: int) -> Any:
        """Build the stage of a task, whose first part has the current key, and restore it from its parts' state."""
        stage = self._ready.pop(task, None) or self._build(task)
        parts = self._own.parts_of[task]
        states = []
        for part in parts:
            if len(parts) > 1:
                self._backend.select(self.keys[part])
            sealed = self._sealed[part] = SealedEntries(str(Place(self.operator, part)))
            states.append(list(sealed.opened(self._backend.items())))
        self._worker.call(stage.restore, *states)
        self._stages[task] = self._profile.stages[task] = stage
        return stage

    def _apply(self, outcome: Outcome, task: int = 0) -> Iterator[Any]:
        """Write an outcome's state changes, then yield its messages: a barrier never comes between the two."""
        profile, began = self._profile, time.perf_counter()
        shared = len(self._own.parts_of[task]) > 1
        for part, mutations in outcome.mutations.items():
            if shared:
                self._backend.select(self.keys[part])
            sealed = self._sealed[part].seal(mutations)
            self._backend.apply(sealed.puts, sealed.deletes)
            profile.bytes_state += sum(len(value) for _, value in sealed.puts)
        applied = time.perf_counter()
        profile.state += applied - began
        profile.emits_since = applied
        blocks = (message.block for message in outcome.messages)
        self._outbox.set(sum(len(block) for block in blocks if isinstance(block, bytes)))
        yield from self._elements(outcome.messages)
        self._outbox.set(0)
        self._emitted(applied)

    def _elements(self, messages: Sequence[Message]) -> Iterator[Any]:
        for message in messages:
            if message.to not in self.receivers:
                text = f"{self.operator}: message to {message.to!r}, expected one of {tuple(self.receivers)}"
                raise ValueError(text)
            assert isinstance(message.block, bytes)
            if not is_token(message.block):
                self._profile.bytes_out += len(message.block)
            row = Row(self._keys_of[message.to][message.task], message.block)
            yield (self._tag, row) if message.to == TAIL else row
