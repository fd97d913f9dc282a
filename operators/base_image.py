"""Epoch 0: the snapshot goes through the cores once, and what they then hold becomes the base image of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from operators.epochs.partitioner_stage import control_of
from operators.factory import load_plan, make_core
from operators.messages import STORAGE, Message
from operators.network import PARTITIONER, Network, operators_of, senders_of
from operators.settings import Settings
from operators.sink.core import Sink
from operators.snapshot.reader import SnapshotError
from operators.stage import Stage
from partitioner.core import Partitioner
from partitioner.events import Events
from state.image import write_image


def build_image(settings: Settings, blocks: Iterable[Events], progress: Callable[[str], None] = lambda _: None) -> int:
    """Apply a snapshot (possibly none) as epoch 0 and write `settings.image`; returns the number of vertices.

    The change log gets the rows of epoch 0. An existing image is overwritten.
    """
    plan = load_plan(settings.model)
    core = Partitioner(settings.parts, plan.in_width, settings.partitioning)
    names = operators_of(len(plan.layers), settings.parts)
    stages = {}
    for name in names:
        for part in range(settings.parts):
            made, senders = make_core(settings, plan, name, part), senders_of(name, settings.parts)
            stages[name, part] = Stage(f"{name}-{part}", made, senders, epoch=-1)
    pieces = list(blocks)
    if pieces:
        progress("partitioning the snapshot")
        events = Events.concatenate(pieces)
        change = core.apply(events)
        if change.rejected:
            row, reason = change.rejected[0]
            edge = f"{events.a.slice(row, row + 1).to_list()[0]} -> {events.b.slice(row, row + 1).to_list()[0]}"
            message = f"the snapshot's edge {edge}: {reason}"
            raise SnapshotError(message)
        vertices = core.vertices
    else:
        change, vertices = core.apply(Events.empty(plan.in_width, settings.id_kind)), 0
    sent = core.split(change, control_of(core, -1, 0, (0.0, 0.0), 0, 0, 0), 0)
    network = Network(stages)
    network.send(PARTITIONER, 0, [Message(STORAGE, part, 0, 0, block) for part, block in enumerate(sent)])
    del change, sent, pieces
    while not network.idle:
        acted = network.step()
        if acted is not None and acted[1] == settings.parts - 1:
            progress(f"{acted[0]}: initial values computed")
    folder = Path(settings.image)
    write_image(core.tables, folder / f"{PARTITIONER}-0", 0)
    for (name, part), stage in stages.items():
        if isinstance(stage.core, Sink):
            stage.core.close()
        write_image(stage.core.tables, folder / f"{name}-{part}", 0)
    return vertices
