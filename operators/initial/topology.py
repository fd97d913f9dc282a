"""The Partitioner's part of epoch 0: the graph, its placement, and the messages to each part's operators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from freshet.gnn.any_plan import AnyPlan
from freshet.operators.control import control_values
from freshet.operators.dataflow import PARTITIONER, Place
from freshet.operators.initial.column_files import ColumnWriter, read_block
from freshet.operators.initial.edge_order import in_edge_order
from freshet.operators.settings import Settings
from freshet.operators.snapshot.reader import SnapshotError
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import Events
from freshet.partitioner.net_change import EpochChange
from freshet.schema import FeatureRows
from freshet.state.block_columns import CHANGED_EDGES, DELETED_EDGES, TOPOLOGY
from freshet.state.codec import Block, Header, views
from freshet.state.image import write_image
from freshet.state.task_parts import TaskParts

_NEVER = ("d_slot", "f_slot", "rd_slot", "u_slot", DELETED_EDGES.names[0], CHANGED_EDGES.names[0])


def refuse_rejected(change: EpochChange, events: Events) -> None:
    """Refuse a snapshot whose graph breaks a rule.

    Raises: SnapshotError naming the first such edge.
    """
    if change.rejected:
        row, reason = change.rejected[0]
        ends = [ids.slice(row, row + 1).to_list()[0] for ids in (events.a, events.b)]
        msg = f"the snapshot's edge {ends[0]} -> {ends[1]}: {reason}"
        raise SnapshotError(msg)


def place_graph(settings: Settings, plan: AnyPlan, events: Events, work: Path) -> dict[str, int]:
    """Write the Partitioner's image, and the blocks of epoch 0 into `work`; returns the first fields of an ImageReport.

    In place of features a block has their rows in `events.x`.
    Raises: SnapshotError for a graph that breaks a rule.
    """
    parts = settings.parts
    core = Partitioner(parts, plan.features, settings.partitioning, TaskParts.dealt(parts, parts))
    image = Path(settings.image) / str(Place(PARTITIONER, 0))
    core.tables.keep_in(image)
    change = core.partition(events, snapshot=True)
    refuse_rejected(change, events)
    found = {"vertices": core.vertices, "edges": core.edges, "replaced": change.effects.replaced}
    core.forget_indexes()
    rows = FeatureRows(np.arange(len(events.x), dtype=np.int32)[:, None])
    blocks = core.split(replace(change, x=rows), control_values(vertices=found["vertices"]), 0)
    del change
    core.tables.let_go()
    for part in range(parts):
        save_topology(work, part, in_edge_order(blocks[part]))
        blocks[part] = Block(blocks[part].header)  # its memory is what the next one takes
    write_image(core.tables, image, 0)
    return found


def _folder(work: Path, part: int) -> Path:
    return work / f"topology-{part}"


def save_topology(work: Path, part: int, block: Block) -> None:
    """Write a part's block.

    Raises: EmbedError when the disk is full.
    """
    assert not any(one.get(name).size for one in views(block).values() for name in _NEVER)  # a snapshot only adds
    with ColumnWriter(_folder(work, part)) as out:
        for name, column in block.columns.items():
            out.add(name, column)
        out.close()


def read_topology(work: Path, part: int) -> Block:
    """A part's block, mapped."""
    return read_block(_folder(work, part), Header(TOPOLOGY, 0, 0, part))
