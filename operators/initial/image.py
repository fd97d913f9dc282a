"""The base image of a snapshot, operator by operator; a finished step is kept, and a later attempt goes on behind it.

The Partitioner comes first and takes the topology alone. Then come, layer by layer and part by part, the Storages and
Tails, and last the Sinks. Tables lie in the image's files, and what one operator sends to the next in others. For
embeddings alone the image of an operator is removed as soon as it has sent its rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from freshet.gnn.any_plan import AnyPlan
from freshet.operators.dataflow import FEATURES, PARTITIONER, SINK, STORAGE, TAIL, Operator, Place
from freshet.operators.embed.files import EmbedError, FinishedSteps, full_disk
from freshet.operators.factory import dataflow_of
from freshet.operators.initial.column_files import are_whole, check_columns, remove_columns
from freshet.operators.initial.embeddings import write_rows, write_sink
from freshet.operators.initial.graph_events import read_events, write_events
from freshet.operators.initial.layers import EVENTS, LayerImages
from freshet.operators.initial.topology import place_graph
from freshet.operators.settings import Settings
from freshet.operators.storage.learned import LOOKED_UP
from freshet.partitioner.events import Events
from freshet.state.checksums.files import checksum_of

PLACED = PARTITIONER  # the first step, by its name in the journal: the topology is placed
Blocks = Callable[[], Iterable[Events]]


class ImageStep(NamedTuple):
    """Unit of work: an operator's part; `layer` counts as in the dataflow."""

    operator: Operator
    part: int

    @property
    def name(self) -> str:
        """Name in the journal."""
        return f"{self.operator.name}-{self.part}"


@dataclass
class ImageReport:
    """Result of making a base image."""

    vertices: int = 0
    edges: int = 0
    resumed: bool = False
    replaced: int = 0  # edges of the snapshot that repeat one before them


class InitialImage:
    """Writes the base images of a job that starts from a snapshot, and epoch 0 of its change log.

    It writes to `image` and `out` of the settings. `work` has temporary files, and the journal. With `rows_alone` only
    embeddings are left in `out`, and in `image` whether vertices have learned rows.
    Invariant: the output depends on snapshot, model and settings alone, not on `memory` or on kills.
    Raises: SnapshotError for bad rows; EmbedError for a full disk or a damaged file.
    """

    def __init__(
        self,
        settings: Settings,
        plan: AnyPlan,
        work: Path,
        memory: int,
        progress: Callable[[str], None] = lambda _: None,
        *,
        rows_alone: bool = False,
    ) -> None:
        self._rows_alone = rows_alone
        self._settings, self._plan, self._work, self._progress = settings, plan, work, progress
        self._layers = LayerImages(settings, plan, work, memory)
        self._flow = dataflow_of(settings, plan)

    @property
    def waves(self) -> list[list[str]]:
        """The steps by name: those of a wave read what the waves before have written, and may go side by side."""
        return [[PLACED], *([step.name for step in self._steps(operator)] for operator in self._flow.staged)]

    def run(self, blocks: Blocks) -> ImageReport:
        """Run the remaining steps; `blocks` returns the snapshot's events at each call."""
        resumed = self.begin()
        for wave in self.waves:
            for name in wave:
                self.do(name, blocks)
        return self.report(resumed=resumed)

    def begin(self) -> bool:
        """Check what an earlier attempt has left; whether it has left anything."""
        self._work.mkdir(parents=True, exist_ok=True)
        journal = FinishedSteps(self._work)
        self._check(journal)
        return len(journal.steps) > 1

    def report(self, *, resumed: bool) -> ImageReport:
        """Return the result of the finished image.

        Raises: EmbedError naming the steps that are missing.
        """
        journal = FinishedSteps(self._work)
        missing = [name for wave in self.waves for name in wave if journal.get(name) is None]
        if missing:
            msg = f"{self._work}: {', '.join(missing[:5])} not done, of {sum(map(len, self.waves))} steps"
            raise EmbedError(msg)
        return ImageReport(**journal.get(PLACED), resumed=resumed)

    def do(self, name: str, blocks: Blocks) -> dict[str, int]:
        """Do one step, unless it is finished, whose wave's turn it is; checksums of what it has left by file.

        Processes may do the steps of a wave side by side. The first of them removes what only waves before have read.
        """
        try:
            journal = FinishedSteps(self._work)
            if name == PLACED:
                return self._place(journal, blocks)
            step = next(one for operator in self._flow.staged for one in self._steps(operator) if one.name == name)
            if step.part == 0:
                self._forget_before(step.operator)
            found: dict[str, int] | None = journal.get(name)
            if found is None:
                self._progress(f"{step.operator.name}, part {step.part + 1} of {self._settings.parts}")
                found = self._do(step, journal.get(PLACED)["vertices"])
                journal.put(name, found)
            return found
        except OSError as error:
            raise full_disk(Path(error.filename or self._work), error) from None

    def _place(self, journal: FinishedSteps, blocks: Blocks) -> dict[str, int]:
        """Write the snapshot's events to files, and place its topology."""
        features, kind = self._plan.features, self._settings.id_kind
        keys = self._settings.partitioning.edge_keys
        events = self._work / EVENTS
        if journal.get(EVENTS) is None:
            is_timed = self._settings.partitioning.rules.is_timed
            write_events(blocks(), events, features, kind, self._progress, is_timed=is_timed, key_kind=keys)
            journal.put(EVENTS, {})
        if journal.get(PLACED) is None:
            self._progress("partitioning the snapshot")
            found = place_graph(self._settings, self._plan, read_events(events, features, kind, keys), self._work)
            self.drop_image(Place(PARTITIONER, 0))
            journal.put(PLACED, found)
        return {}

    def _steps(self, operator: Operator) -> Iterator[ImageStep]:
        return (ImageStep(operator, part) for part in range(self._settings.parts))

    def _do(self, step: ImageStep, vertices: int) -> dict[str, int]:
        if step.operator.kind != SINK:
            found = self._layers.make(step.operator.name, step.part)
            self.drop_image(Place(step.operator.name, step.part))
            return found
        if self._rows_alone:
            write_rows(self._settings, self._plan, self._work, step.part, self._progress)
        else:
            write_sink(self._settings, self._plan, self._work, step.part, vertices)
        return {}

    def drop_image(self, place: Place) -> None:
        """Remove the image of an operator if only its rows are wanted; no other step reads it."""
        for file in (Path(self._settings.image) / str(place)).iterdir() if self._rows_alone else ():
            if not file.name.endswith(f"{LOOKED_UP}.bin"):
                file.unlink()

    def _forget_before(self, operator: Operator) -> None:
        """All operators before this one are done: remove what only they have read."""
        for done in takewhile(lambda other: other != operator, self._flow.staged):
            if done.name == FEATURES:
                remove_columns(self._work / EVENTS)
            elif done.kind == TAIL or (done.kind == STORAGE and self._settings.parts == 1):
                self._layers.forget(done.layer)

    def _check(self, journal: FinishedSteps) -> None:
        """Check that what an earlier attempt has left is what it wrote.

        Raises: EmbedError naming the file.
        """
        for name, files in journal.steps.items():
            for file, crc32 in files.items() if isinstance(files, dict) and name != PLACED else ():
                path = self._work / file
                if path.exists() and checksum_of(path, zlib.crc32) != crc32:
                    msg = f"{path}: does not match its checksum; remove the folder and embed again"
                    raise EmbedError(msg)
        for folder in self._work.iterdir():
            if are_whole(folder):
                check_columns(folder)
