"""Epoch 0: the snapshot goes through the cores once, and what they then hold becomes the base image of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from freshet.operators.control import control_values
from freshet.operators.dataflow import FEATURES, PARTITIONER, STORAGE, Place
from freshet.operators.factory import CoreFactory, dataflow_of, make_core, plan_of, stages_of
from freshet.operators.initial.edge_order import in_edge_order
from freshet.operators.initial.image import Blocks, ImageReport, InitialImage
from freshet.operators.initial.topology import refuse_rejected
from freshet.operators.network import Network
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import Events
from freshet.state.image import write_image


def build_image(
    settings: Settings,
    blocks: Iterable[Events],
    progress: Callable[[str], None] = lambda _: None,
    core_of: CoreFactory = make_core,
) -> int:
    """Apply a snapshot (possibly none) as epoch 0 and write `settings.image`; returns the number of vertices.

    The change log gets the rows of epoch 0. An existing image is overwritten.
    """
    plan = plan_of(settings)
    settings = replace(settings, tasks=(settings.parts,))  # an image is of one part, whatever computed it
    core = Partitioner(settings.parts, plan.features, settings.partitioning, settings.task_parts.of(FEATURES))
    flow = dataflow_of(settings, plan)
    stages = stages_of(replace(settings, image=""), plan, core_of=core_of, epoch=-1)
    pieces = list(blocks)
    if pieces:
        progress("partitioning the snapshot")
        events = Events.concatenate(pieces)
        change = core.partition(events, snapshot=True)
        refuse_rejected(change, events)
        vertices = core.vertices
    else:
        change, vertices = core.partition(Events.empty(plan.features, settings.id_kind)), 0
    sent = [in_edge_order(block) for block in core.split(change, control_values(vertices=core.vertices), 0)]
    network = Network(flow, stages)
    network.send(Place(PARTITIONER, 0), [Message(STORAGE, task, 0, block) for task, block in enumerate(sent)])
    del change, sent, pieces
    while not network.idle:
        acted = network.step()
        if acted is not None and acted[0].number == flow[acted[0].operator].tasks - 1:
            progress(f"{acted[0].operator}: initial values computed")
    folder = Path(settings.image)
    write_image(core.tables, folder / str(Place(PARTITIONER, 0)), 0)
    for place, stage in stages.items():
        stage.core.close()
        for k, part in enumerate(stage.parts):
            tables, number = stage.core.tables_of(k)
            write_image(tables, folder / str(Place(place.operator, part)), 0, number)
    return vertices


def write_initial_image(
    settings: Settings, blocks: Blocks, work: Path, memory: int, progress: Callable[[str], None]
) -> ImageReport:
    """Write the base images of a job that starts from a snapshot.

    Raises: see InitialImage.
    """
    return InitialImage(settings, plan_of(settings), work, memory, progress).run(blocks)
