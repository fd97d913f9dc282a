"""Memory and disk that a job will need, of its operators and of a server beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from freshet.gnn.any_plan import AnyPlan, inner_plan, returned_of
from freshet.gnn.block_pass import inner_widths
from freshet.job.size.miniature import ID_BYTES, GraphSize, OperatorBytes, operators_of
from freshet.job.units import readable
from freshet.operators.dataflow import FEATURES, PARTITIONER
from freshet.operators.factory import load_plan
from freshet.operators.inbox import INBOX_BYTES
from freshet.operators.limits import TAIL_BYTES
from freshet.partitioner.ids import STRING
from freshet.state.served.layout import HISTORY_BYTES, TableShape

_MIB = 1 << 20
PROCESS_BYTES = 250 * _MIB  # Python with its libraries and compiled kernels, measured
_ROW_BYTES = 9.0  # of the change log beside the embedding: id and whether it is deleted; the epoch is a dictionary's
_JOURNAL_BYTES = 64 * _MIB  # as much input lies between two markers at least, if it comes that fast
ROWS_BYTES = 5 * 64 * _MIB  # of a part: change-log files until they are written, and one as it is written


@dataclass(frozen=True)
class Estimate:
    """Bytes by what takes them.

    `operators` is memory over all parts and processes. `process` comes once for each process of the job, and Java's
    heap and buffers on top of it. `server` is shared memory of `freshet serve`; twice that while its table grows.
    `what_if` is the server's own memory with `--what-if`: the graph, and rows of inner layers. Of several returned
    kinds, of which each has a change log and a server, it is that of all. Of a job with `--embeddings asked` these are
    the kinds of the last inner layer, whose rows the job writes; `what_if` is the server's own memory in any case.
    """

    operators: dict[str, int]
    tables: int
    process: int
    buffers: int
    server: int
    what_if: int
    change_log: int
    change_log_per_million_rows: int
    base_image: int
    checkpoint: int
    journal: int
    tails: int

    def as_json(self) -> dict[str, Any]:
        """Plain data: memory and disk."""
        found = asdict(self)
        memory = "operators", "tables", "process", "buffers", "server", "what_if"
        return {
            "memory": {name: found[name] for name in memory},
            "disk": {name: value for name, value in found.items() if name not in memory},
        }


def estimate(model: Path, shape: GraphSize) -> Estimate:
    """Estimate what a job needs that holds such a graph.

    Raises: ModelError for a model that can't be read.
    """
    held = operators_of(model, shape)
    plan = load_plan(str(model))
    plan = inner_plan(plan) if shape.is_asked else plan
    returned, strings = returned_of(plan), shape.id_kind == STRING
    text = ID_BYTES * strings
    sizes = [shape.vertices[one.number] for one in returned]
    rows = [_ROW_BYTES + 4 * one.width + (text - 4 if strings else 0) for one in returned]
    change_log = sum(row * n for row, n in zip(rows, sizes, strict=True))
    served = [
        TableShape.of(one.width, strings, 2 * n, 2 * text * n, HISTORY_BYTES)
        for one, n in zip(returned, sizes, strict=True)
    ]
    state = sum(one.state for one in held.values())
    return Estimate(
        operators={name: int(one.memory) for name, one in held.items()},
        tables=int(sum(one.memory for one in held.values())),
        process=PROCESS_BYTES,
        buffers=int(min(ROWS_BYTES * shape.parts * len(returned), change_log) + INBOX_BYTES * len(held)),
        server=sum(one.nbytes for one in served),
        what_if=_what_if(held, plan, shape),
        change_log=int(change_log),
        change_log_per_million_rows=int(change_log * 1e6 / sum(sizes)),
        base_image=int(state),
        checkpoint=int(state),
        journal=int(2 * max(_JOURNAL_BYTES, state)),
        tails=TAIL_BYTES * shape.parts * len(returned),
    )


def _what_if(held: Mapping[str, OperatorBytes], plan: AnyPlan, shape: GraphSize) -> int:
    """Return the memory of a server's graph, and of the rows and attributes beside it."""
    rows = sum(width * n for width, n in zip(inner_widths(plan.layers), shape.vertices, strict=True))
    attributes = plan.features.edge_width * sum(shape.edges) * (1 + shape.undirected)
    graph = sum(held[name].memory for name in (PARTITIONER, FEATURES))
    return int(graph + 4 * (rows + attributes))


def page(found: Estimate, *, is_asked: bool = False) -> str:
    """Return the estimate as lines for people; `is_asked`: of a job with `--embeddings asked`."""
    of_graph = "its own memory besides" + (", of which it computes rows" if is_asked else ", with --what-if")
    operators = [(name, size, "") for name, size in found.operators.items()]
    memory = [
        *operators,
        (
            "all operators",
            found.tables,
            "over all processes; pages that change beside a checkpoint are there twice",
        ),
        ("buffers", found.buffers, "change log until a file of it is written, and inboxes"),
        (
            "each process",
            found.process,
            "Python and libraries; Java comes on top: docs/reference/memory.md",
        ),
        ("server", found.server, "shared memory of each `freshet serve`; twice that while its table grows"),
        ("graph" if is_asked else "what if", found.what_if, of_graph),
    ]
    disk = [
        ("inner rows" if is_asked else "change log", found.change_log, "each vertex once"),
        ("", found.change_log_per_million_rows, "per million rows that change"),
        ("tails", found.tails, "at most, in OUT/tables"),
        ("base image", found.base_image, "of a job that starts from a snapshot"),
        ("checkpoint", found.checkpoint, "each, beside the journal"),
        ("journal", found.journal, "at most, in each checkpoint, at a high rate of events"),
    ]
    lines = ["memory", *map(_line, memory), "disk", *map(_line, disk)]
    return "\n".join(line.rstrip() for line in lines)


def _line(row: tuple[str, int, str]) -> str:
    name, size, note = row
    return f"  {name:14} {readable(size):>10}  {note}"
