"""The base image of a snapshot, operator by operator; a finished step is kept, and a later attempt goes on behind it.

The Partitioner comes first and takes the topology alone. Then come, layer by layer and part by part, the Storages and
Tails, and last the Sinks. Tables lie in the image's files, and what one operator sends to the next in others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gnn.plan import Plan
from operators.dataflow import FEATURES, PARTITIONER, SINK, STORAGE, TAIL, Operator
from operators.embed.files import EmbedError, full_disk
from operators.embed.journal import Journal
from operators.factory import dataflow_of
from operators.initial.column_files import check_columns
from operators.initial.embeddings import write_sink
from operators.initial.graph_events import read_events, write_events
from operators.initial.layers import EVENTS, LayerImages
from operators.initial.topology import place_graph
from operators.settings import Settings
from partitioner.events import Events
from state.image import file_crc32


class Step(NamedTuple):
    """What is kept as one: an operator's part; `layer` counts as in the dataflow."""

    operator: Operator
    part: int

    @property
    def name(self) -> str:
        """In the journal."""
        return f"{self.operator.name}-{self.part}"


@dataclass
class ImageReport:
    """What a base image came to."""

    vertices: int = 0
    edges: int = 0
    resumed: bool = False


class InitialImage:
    """Writes the base images of a job that starts from a snapshot, and epoch 0 of its change log.

    Settings say where: `image` and `out`. `work` holds what is only needed until it is done, and the journal.
    Invariant: what is written depends on snapshot, model and settings alone, not on `memory` or on kills.
    Raises: SnapshotError for bad rows; EmbedError for a full disk or a damaged file.
    """

    def __init__(
        self, settings: Settings, plan: Plan, work: Path, memory: int, progress: Callable[[str], None] = lambda _: None
    ) -> None:
        self._settings, self._plan, self._work, self._progress = settings, plan, work, progress
        self._layers = LayerImages(settings, plan, work, memory)
        self._flow = dataflow_of(settings, plan)

    def run(self, blocks: Callable[[], Iterable[Events]]) -> ImageReport:
        """Do what is left; `blocks` gives the snapshot's events, as often as it is called."""
        try:
            return self._run(blocks)
        except OSError as error:
            raise full_disk(Path(error.filename or self._work), error) from None

    def _run(self, blocks: Callable[[], Iterable[Events]]) -> ImageReport:
        self._work.mkdir(parents=True, exist_ok=True)
        journal = Journal(self._work)
        report = ImageReport(resumed=len(journal.steps) > 1)
        self._check(journal)
        width, kind = self._plan.in_width, self._settings.id_kind
        events = self._work / EVENTS
        if journal.get(EVENTS) is None:
            write_events(blocks(), events, width, kind, self._progress)
            journal.put(EVENTS, {})
        placed: dict[str, Any] | None = journal.get(PARTITIONER)
        if placed is None:
            self._progress("partitioning the snapshot")
            vertices, edges = place_graph(self._settings, self._plan, read_events(events, width, kind), self._work)
            placed = {"vertices": vertices, "edges": edges}
            journal.put(PARTITIONER, placed)
        report.vertices, report.edges = placed["vertices"], placed["edges"]
        for step in self._steps():
            if journal.get(step.name) is None:
                self._progress(f"{step.operator.name}, part {step.part + 1} of {self._settings.parts}")
                journal.put(step.name, self._do(step, report.vertices))
            if step.part == self._settings.parts - 1:
                self._forget(step.operator)
        return report

    def _steps(self) -> Iterator[Step]:
        for operator in self._flow.staged:
            yield from (Step(operator, part) for part in range(self._settings.parts))

    def _do(self, step: Step, vertices: int) -> dict[str, int]:
        if step.operator.kind == SINK:
            write_sink(self._settings, self._plan, self._work, step.part, vertices)
            return {}
        return self._layers.make(step.operator.name, step.part)

    def _forget(self, operator: Operator) -> None:
        """All parts of an operator are done: remove what only they have read."""
        if operator.name == FEATURES:
            shutil.rmtree(self._work / EVENTS, ignore_errors=True)
        elif operator.kind == TAIL or (operator.kind == STORAGE and self._settings.parts == 1):
            self._layers.forget(operator.layer)

    def _check(self, journal: Journal) -> None:
        """Check that what an earlier attempt has left is what it wrote.

        Raises: EmbedError naming the file.
        """
        for name, files in journal.steps.items():
            for file, crc32 in files.items() if isinstance(files, dict) and name != PARTITIONER else ():
                path = self._work / file
                if path.exists() and file_crc32(path) != crc32:
                    msg = f"{path}: does not match its checksum; remove the folder and embed again"
                    raise EmbedError(msg)
        for folder in self._work.iterdir():
            if (folder / "columns.json").is_file():
                check_columns(folder)
