"""One step of an embedding, in a process with memory of its own: `python -m freshet.job.embed.step FILE`.

FILE has the options of all steps. The step's name and the manifests of the steps before it come on standard input; its
own manifest goes to standard output: its name, and size and checksum of each file that it leaves for others.
"""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from freshet.errors import FreshetError, InputError
from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.files.listing import size_of
from freshet.files.owner_only import write_for_owner_only
from freshet.gnn.own.loading import install_layers, loaded_sources
from freshet.gnn.plan import Plan
from freshet.job.errors import EXIT_DONE, JobFailed, exit_code, one_line
from freshet.job.folder import layout
from freshet.job.machine.processes import die_with_parent, run_as_process
from freshet.operators.embed.embedding import Embedding
from freshet.operators.embed.engine import EngineOptions
from freshet.operators.embed.files import EmbedError, full_disk
from freshet.operators.factory import load_plan, plan_of
from freshet.operators.initial.image import InitialImage
from freshet.operators.settings import Settings
from freshet.operators.snapshot.reader import Snapshot, open_snapshot

_ADVICE = "remove the folder and embed again"
STEPS, TOLD_FILE, FAILED_FILE = "steps", "steps.json", "failed.json"


@dataclass(frozen=True)
class _Failure:
    exit: int
    message: str


@dataclass(frozen=True)
class Serving:
    """Options of the steps of an embedding out of core; `passes` of each layer."""

    model: str
    undirected: bool
    order: str
    eviction: str
    passes: list[int]
    prepare_memory: int


@dataclass(frozen=True)
class StepSettings:
    """Options of all steps; `memory` is that of one step, in bytes, `work` the folder of the embedding.

    `settings` are those of operators, if they compute the embeddings; otherwise `serving` is set.
    """

    settings: dict[str, Any] | None
    snapshot: str
    memory: int
    work: str
    serving: dict[str, Any] | None = None
    rows_alone: bool = False
    """True if operators write embeddings, and remove their state."""
    layers: dict[str, str] = field(default_factory=loaded_sources)
    """Sources of the modules of written layers, by name; the folder is temporary."""

    @property
    def path(self) -> Path:
        """The file that says it."""
        return Path(self.work) / TOLD_FILE

    @property
    def failed(self) -> Path:
        """The file that says why no step will succeed: another attempt would fail in the same way."""
        return Path(self.work) / FAILED_FILE

    @property
    def folder(self) -> Path:
        """Folder of the journal, and of files that steps leave for others."""
        return Path(self.work) / STEPS if self.serving is None else Path(self.work)

    @property
    def model(self) -> str:
        """The model's folder."""
        return str((self.settings or self.serving or {})["model"])

    def write(self) -> None:
        """Write the file."""
        write_json(self.path, asdict(self))

    @staticmethod
    def read(path: Path) -> StepSettings:
        """Read such a file.

        Raises: EmbedError where it is damaged, or not there.
        """
        try:
            found = read_json(path, StepSettings, _ADVICE)
        except DamagedFileError as error:
            raise EmbedError(str(error)) from None
        if found is None:
            msg = f"{path}: is missing; {_ADVICE}"
            raise EmbedError(msg)
        return found


class Steps(NamedTuple):
    """A computation in steps: their names by waves, and the functions to call."""

    waves: list[list[str]]
    begin: Callable[[], bool]
    do: Callable[[str], dict[str, int]]
    report: Callable[..., Any]


def steps_of(settings: StepSettings, snapshot: Snapshot, progress: Callable[[str], None] = lambda _: None) -> Steps:
    """Return the steps for these options."""
    if settings.serving is None:
        made, blocks = initial_image(settings, snapshot, progress)
        return Steps(made.waves, made.begin, partial(made.do, blocks=blocks), made.report)
    given = Serving(**settings.serving)
    options = EngineOptions(settings.memory, eviction=given.eviction)
    plan = load_plan(given.model)
    assert isinstance(plan, Plan)  # operators compute the embeddings of other models
    embedding = Embedding(
        plan, snapshot, settings.folder, Path(settings.work), options,
        undirected=given.undirected, order=given.order, progress=progress, passes=given.passes,
        prepare_memory=given.prepare_memory,
    )  # fmt: skip
    return Steps(embedding.waves, embedding.begin, embedding.do, embedding.report)


def initial_image(
    settings: StepSettings, snapshot: Snapshot, progress: Any = lambda _: None
) -> tuple[InitialImage, Any]:
    """The image that is to be made, and what gives the snapshot's events in blocks."""
    operators = Settings.from_dict(settings.settings or {})
    plan = plan_of(operators)
    rows = max(256, min(65_536, settings.memory // 32 // (16 * max(plan.features.row_bytes // 4, 8))))
    image = InitialImage(operators, plan, settings.folder, settings.memory, progress, rows_alone=settings.rows_alone)
    return image, lambda: snapshot.blocks(rows, mapped=False)


def settings_of(model: Path, work: Path, parts: int, partitioning: Any) -> Settings:
    """Return the settings of operators, in the folder of an embedding."""
    model, image = model.absolute(), work / layout.IMAGE
    return Settings(model=str(model), out=str(work), image=str(image), parts=parts, partitioning=partitioning)


def do_step(settings: StepSettings, name: str, inputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Do a step, unless it is finished; returns its manifest.

    Raises: SnapshotError for bad rows; EmbedError for a full disk or a damaged file.
    """
    plan = load_plan(settings.model)
    snapshot = open_snapshot(Path(settings.snapshot), plan.features, edge_types=plan.edge_types or None)
    steps = steps_of(settings, snapshot)
    for manifest in inputs:
        _check_input(settings.folder, manifest)
    with _alone(settings.folder / f"{name}.lock"):
        found = steps.do(name)
    sizes = {file: size_of(settings.folder / file) for file in found}  # a later wave removes some
    return {"step": name, "files": {file: [size, found[file]] for file, size in sizes.items() if size is not None}}


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the step: of a worker that Flink took for dead, or a job that was left, the process may still be at it."""
    try:
        lock = path.open("ab")
    except OSError as error:
        raise full_disk(path, error) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        yield


def _check_input(folder: Path, manifest: dict[str, Any]) -> None:
    """Check that files that are still there have the size that their step says; a later wave may have removed them."""
    for file, (size, _) in manifest["files"].items():
        there = size_of(folder / file)
        if there not in (None, size):
            msg = f"{folder / file}: {there:,} bytes, {manifest['step']} left {size:,}; is the folder shared?"
            raise EmbedError(msg)


def main() -> int:
    """Do the step that standard input names."""
    die_with_parent()
    write_for_owner_only()  # also on a cluster that others have started
    try:
        settings, asked = StepSettings.read(Path(sys.argv[1])), orjson.loads(sys.stdin.read())
    except EmbedError as error:
        print(error, file=sys.stderr)
        return exit_code(error)
    install_layers(settings.layers)
    if (failure := failure_of(settings)) is not None:
        return exit_code(failure)
    try:
        manifest = do_step(settings, asked["step"], asked["inputs"])
    except FreshetError as error:
        _note_failure(settings, error)
        print(one_line(error), file=sys.stderr)
        return exit_code(error)
    print(orjson.dumps(manifest).decode(), flush=True)
    return EXIT_DONE


def _note_failure(settings: StepSettings, error: FreshetError) -> None:
    with suppress(OSError):  # a full disk, most likely: then Flink tries again, and gives up by itself
        write_json(settings.failed, {"exit": exit_code(error), "message": one_line(error)})


def failure_of(settings: StepSettings) -> FreshetError | None:
    """Return the reason for which a step has reported that no attempt will succeed."""
    try:
        found = read_json(settings.failed, _Failure, _ADVICE)
    except DamagedFileError as error:
        return JobFailed(str(error))
    if found is None:
        return None
    failed = JobFailed(found.message)
    return failed if found.exit == exit_code(failed) else InputError(found.message)


if __name__ == "__main__":
    run_as_process(main)
