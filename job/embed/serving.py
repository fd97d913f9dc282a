"""Embeddings for serving alone, of graphs too large for the topology of a streaming job: options and computation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from freshet.gnn.plan import Plan
from freshet.job.console import ProgressDisplay, say
from freshet.job.embed import folder
from freshet.job.embed.batch_job import Spread, of_runtime, run_on_flink
from freshet.job.embed.needs import Needs, check_disk, lines_of_passes
from freshet.job.embed.step import Serving, StepSettings
from freshet.job.errors import JobFailed
from freshet.operators.embed.embedding import Embedding, EmbeddingReport
from freshet.operators.embed.engine import EngineOptions, layer_name
from freshet.operators.embed.files import EmbedError, FinishedSteps
from freshet.operators.embed.memory_plan import (
    BudgetError,
    LayerColumns,
    file_block_rows,
    held_passes,
    passes_without_cold_store,
)
from freshet.operators.snapshot.reader import Snapshot

_PASSES_MAX = 64  # that are drawn for a layer


@dataclass(frozen=True)
class Serve:
    """Options of embeddings for serving; `engine.memory` is that of all steps that run at the same time."""

    engine: EngineOptions
    order: str
    undirected: bool
    spread: Spread | None

    @property
    def step(self) -> EngineOptions:
        """The engine's options in one of the steps."""
        return replace(self.engine, memory=self.engine.memory // self.side_by_side)

    @property
    def side_by_side(self) -> int:
        """Steps at a time."""
        return 1 if self.spread is None else self.spread.parallelism


def check(needs: Needs, serve: Serve, snapshot: Snapshot, work: Path) -> None:
    """Report the memory and disk needed; refuse to start if they are not available."""
    drawn = None
    with suppress(BudgetError), _clear_ends():  # of too little memory `lines_of_passes` says more
        drawn = None if serve.spread is None else drawn_passes(needs, serve, FinishedSteps(work))
    for line in lines_of_passes(needs, serve.engine, serve.side_by_side, drawn):
        say(line)
    linked = snapshot.folder.stat().st_dev == work.stat().st_dev
    needed = needs.disk(serve.engine, serve.order, linked)
    say(check_disk(needed, work.parent, folder.used_bytes(work)))


def told(serve: Serve) -> dict[str, Any]:
    """Return the options that a continued attempt must share."""
    return {"--for": "serving", "--order": serve.order, "--passes": serve.engine.passes}


def make_embeddings(
    model: Path, plan: Plan, snapshot: Snapshot, work: Path, serve: Serve, needs: Needs
) -> tuple[EmbeddingReport, dict[str, Any]]:
    """Write the embeddings into the work folder, or go on with that; on Flink if it is spread.

    Returns what it came to, and more for the JSON line.
    Raises: SnapshotError for bad rows; BudgetError for a small budget; JobFailed for a full disk or a damaged file.
    """
    with ProgressDisplay("embed") as bar, _clear_ends():
        if serve.spread is None:
            embedding = Embedding(
                plan, snapshot, work, work, serve.engine, undirected=serve.undirected, order=serve.order,
                progress=bar.update,
            )  # fmt: skip
            return embedding.run(), of_runtime(None, None)
        passes = drawn_passes(needs, serve, FinishedSteps(work))
        given = Serving(
            str(model.absolute()), serve.undirected, serve.order, serve.engine.eviction, passes, serve.engine.memory
        )
        steps = StepSettings(None, str(snapshot.folder), serve.step.memory, str(work), asdict(given))
        report, peak = run_on_flink(steps, snapshot, serve.spread, bar.update)
        return report, of_runtime(serve.spread, peak)


@contextmanager
def _clear_ends() -> Iterator[None]:
    """Have what goes wrong be an error of the command."""
    try:
        yield
    except EmbedError as error:
        raise JobFailed(str(error)) from None


def drawn_passes(needs: Needs, serve: Serve, journal: FinishedSteps) -> list[int]:
    """Return the passes of each layer, which a job must know before it begins: those recorded, else those given.

    Otherwise the fewest that need no cold store in the memory of a step, rounded up so that no step is idle.
    """
    return [_drawn(needs, serve, journal, number, shape) for number, shape in enumerate(needs.shapes, 1)]


def _drawn(needs: Needs, serve: Serve, journal: FinishedSteps, number: int, shape: LayerColumns) -> int:
    begun = journal.get(layer_name(number))
    if begun is not None:
        return int(begun["passes"])
    memory, vertices = serve.step.memory, needs.vertices
    if shape.held:
        return _dealt(held_passes(memory, vertices, shape, serve.engine.passes or 1), serve)
    if serve.engine.passes is not None:
        return serve.engine.passes
    block_rows = file_block_rows(memory, vertices, shape.out)
    enough = passes_without_cold_store(memory, vertices, shape, block_rows, _PASSES_MAX) or _PASSES_MAX
    return _dealt(enough, serve)


def _dealt(passes: int, serve: Serve) -> int:
    """Round the passes up so that all steps have the same number."""
    return -(-passes // serve.side_by_side) * serve.side_by_side


def line(report: EmbeddingReport, memory: int) -> dict[str, Any]:
    """Return the result for the JSON line."""
    return {
        "vertices": report.vertices,
        "edges": report.edges,
        "replaced": report.replaced,
        "for": "serving",
        "memory": memory,
        "passes": [layer.passes for layer in report.layers],
        "graduated": report.total("graduated"),
        "evicted": report.total("evicted"),
        "reloaded": report.total("reloaded"),
        "bytes_read": sum(layer.bytes_read for layer in report.layers),
        "bytes_written": sum(layer.bytes_written for layer in report.layers) + report.bytes_written,
        "resumed": report.resumed,
        "layers": [layer.record() for layer in report.layers],
    }
