"""Rows that are not kept: made again with the bits that they had, also after a state of an earlier version."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from freshet.files.json_file import write_json
from freshet.gnn.model import save_model
from freshet.operators.control import control_values
from freshet.operators.dataflow import PARTITIONER, STORAGE, Place
from freshet.operators.factory import load_plan, open_network
from freshet.operators.network import Network
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.printed_owner import PrintedOwner
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.schema import Features
from freshet.state.image import write_image
from freshet.state.task_parts import TaskParts
from tests.support.graphs.models import conv, make_model
from tests.support.graphs.streams import random_records, to_events

WIDTH, EPOCHS, SEED = 4, 30, 77
RELU = {"type": "relu"}
MODELS = {  # a changed degree sends rows of the first layer again that have not changed
    "mean": [conv("sage_conv", WIDTH, 3), RELU, conv("gcn_conv", 3, 3)],
    "sum": [conv("graph_conv", WIDTH, 3), conv("graph_conv", 3, 2)],
}


def made(network: Network) -> dict[str, PrintedOwner]:
    """The owners without rows, by operator."""
    cores = {str(place): stage.core for place, stage in network.stages.items()}
    return {
        name: owner
        for name, core in cores.items()
        if isinstance(core, LayerStorage)
        for owner in core.owners
        if isinstance(owner, PrintedOwner)
    }


class Job:
    """A job of one task; `apply` takes an epoch of all kinds of events."""

    def __init__(self, folder: Path, model: str, parts: int) -> None:
        save_model(make_model(5, MODELS[model]), folder / "M")
        rules = PartitionerConfig(hash_seed=SEED)
        self.settings = Settings(str(folder / "M"), "", parts, tasks=(parts,), partitioning=rules)
        self.core = Partitioner(parts, Features(WIDTH), rules, TaskParts.dealt(parts, 1))
        self.epoch, self._rng = 0, random.Random(9)

    def open(self, image: str = "") -> Network:
        """The operators after the Partitioner."""
        return open_network(replace(self.settings, image=image), load_plan(self.settings.model), sinks=False)

    def blocks(self) -> list[Message]:
        """The next epoch, as it leaves the Partitioner."""
        self.epoch += 1
        events = to_events(random_records(self._rng, 15, WIDTH, vertices=30), WIDTH)
        blocks = self.core.split(self.core.partition(events), control_values(), self.epoch)
        return [Message(STORAGE, task, self.epoch, block) for task, block in enumerate(blocks)]

    def apply(self, network: Network, blocks: list[Message]) -> list[bytes]:
        """What an epoch sends to the Sink."""
        sent = network.run(Place(PARTITIONER, 0), blocks)
        columns = [message.block.columns for message in sent]
        return [name.encode() + one[name].tobytes() for one in columns for name in sorted(one)]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("model", MODELS)
def test_rows_are_made_again_with_the_bits_that_they_were_sent_with(tmp_path: Path, model: str, parts: int) -> None:
    job = Job(tmp_path, model, parts)
    network = job.open()
    noted: dict[str, dict[int, bytes]] = {}
    owners, compared = made(network), 0
    assert owners
    for name, owner in owners.items():
        update, rows = owner.update, noted.setdefault(name, {})

        def updated(*given, owner=owner, update=update, rows=rows, **options):  # type: ignore[no-untyped-def]
            changed = update(*given, **options)
            if changed.begins is None:
                places = np.arange(len(changed.slots))
            else:
                places = np.concatenate([np.arange(a, b) for a, b in zip(changed.begins, changed.ends, strict=True)])
            keys = owner.masters.key.data[changed.slots]  # places change as tables of several parts grow
            rows.update({int(keys[k]): changed.x[k].tobytes() for k in places})
            return changed

        owner.update = updated  # type: ignore[method-assign]
    for core in (stage.core for stage in network.stages.values()):
        core.behind = None  # type: ignore[attr-defined]  # rows go through `update` (tests of behind.py compare the two)
    for _ in range(EPOCHS):
        job.apply(network, job.blocks())
        for name, owner in owners.items():
            owned = np.flatnonzero(owner.masters.flags.data == owner.owned).astype(np.int32)
            before, keys = dict(noted[name]), owner.masters.key.data[owned].tolist()
            assert [row.tobytes() for row in owner.rows(owned)] == [before[key] for key in keys]
            prints = owner.prints.data
            assert not prints[owner.masters.flags.data[: len(prints)] == 0].any(), "deleted vertices leave none"
            compared += len(owned)
    assert compared > 100


def make_earlier(image: Path) -> None:
    """Turn an image into one of the version that kept rows; what these are, nobody reads."""
    manifest = orjson.loads((image / "image.json").read_bytes())
    if "print" not in manifest["tables"]:
        return
    rows = manifest["tables"].pop("print")["rows"]
    manifest["tables"].pop("print_seed")
    manifest["tables"]["x"] = {"dtype": "<f4", "shape": [0, 3], "rows": rows, "crc32s": ""}
    (image / "x.bin").touch()
    for name in ("print.bin", "print_seed.bin"):
        (image / name).unlink()
    write_json(image / "image.json", manifest)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_state_of_an_earlier_version_gets_its_prints(tmp_path: Path, parts: int) -> None:
    job = Job(tmp_path, "mean", parts)
    network = job.open()
    for _ in range(EPOCHS):
        job.apply(network, job.blocks())
    for place, stage in network.stages.items():
        for part in range(parts):
            image = tmp_path / "base" / str(Place(place.operator, part))
            write_image(stage.core.tables, image, job.epoch, part)
            make_earlier(image)
    again = job.open(str(tmp_path / "base"))
    for name, owner in made(network).items():
        other = made(again)[name]
        for part in range(parts):
            rows = int(owner.prints.part_rows[part])
            assert rows
            assert other.prints.part(part)[:rows].tobytes() == owner.prints.part(part)[:rows].tobytes()
    for _ in range(EPOCHS):
        blocks = job.blocks()
        sent = job.apply(again, blocks)
        assert sent == job.apply(network, blocks)
    assert sent
