"""A job's folder as `freshet run` leaves it, its sinks driven by hand, with a model that has a head."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from freshet.gnn.model import save_model
from freshet.job.folder import layout
from freshet.job.folder.job_file import SavedJob, paths_of
from freshet.operators.factory import load_plan, make_sink
from freshet.operators.settings import Settings, TailConfig
from freshet.operators.sink.core import Sink
from freshet.partitioner.config import PartitionerConfig
from freshet.state.block_columns import DTYPES, POSITIONS, ROWS
from freshet.state.codec import Block, Header
from tests.support.graphs.models import conv, make_model
from tests.support.stages.sunk import control, log_of

JOB_ID = f"{os.getpid():016x}"  # two runs of the tests at once leave each other alone
WIDTH = 4


class HandJob:
    """Two sink parts; an id's part is whatever the test says."""

    def __init__(
        self,
        out: Path,
        kind: str = "int",
        head: bool = True,
        parts: int = 2,
        machines: Sequence[Path] = (),
        *,
        job_id: str = JOB_ID,
        width: int = WIDTH,
        seed: int = 1,
        link_head: object = None,
    ) -> None:
        """`machines`: of each part, the folder in place of OUT/tables where it has its tails; `seed`: of the model."""
        self.out, self.kind, self.parts, self.machines, self.width = out, kind, parts, list(machines), width
        model = self.model(seed, head)
        if link_head is not None:
            from freshet.gnn.pyg.own.pairs import with_link_heads  # it loads torch

            model = with_link_heads(model, link_head)
        save_model(model, out / "model")
        (out / layout.IMAGE_DONE).parent.mkdir(parents=True)
        (out / layout.IMAGE_DONE).touch()
        settings = Settings(
            model=str(out / "model"),
            **paths_of(out),
            parts=parts,
            partitioning=PartitionerConfig(id_kind=kind),
            sources=("events.jsonl",),
            job_id=job_id,
            returned=tuple(getattr(model, "out", ())),
        )
        self.settings = replace(settings)
        self.plan = load_plan(settings.model)
        SavedJob(settings, self.plan.sha256, None, "local", (), {}).write(out)
        self.sinks: list[Sink] = []
        self.begins_empty = True
        self.names: dict[int, str] = {}  # of string ids, where they are others than `vKEY`
        self.open()

    def model(self, seed: int, head: bool) -> Any:
        """The model without link heads."""
        return make_model(seed, [conv("sage_conv", 3, self.width)], head=[linear(self.width, 3)] if head else [])

    def open(self) -> None:
        """A new attempt, from the beginning."""
        self.sinks = [make_sink(self._settings_at(part), self.plan, part) for part in range(self.parts)]

    def move(self, part: int, machine: Path) -> None:
        """From the next attempt on a part has its tails elsewhere."""
        self.machines[part] = machine

    def _settings_at(self, part: int) -> Settings:
        if not self.machines:
            return self.settings
        tail = TailConfig(tables_folder=str(self.machines[part]), begins_empty=self.begins_empty)
        return replace(self.settings, tail=tail)

    def apply(self, epoch: int, *changes: tuple[dict[int, float], list[int]], **told: int) -> None:
        """An epoch: for each part the rows that it sets, by key, and the keys that it deletes."""
        for part, sink in enumerate(self.sinks):
            rows, dead = changes[part] if part < len(changes) else ({}, [])
            sink.apply(epoch, [self.block(epoch, part, rows, dead, **told)])

    def settle(self) -> None:
        """Have what is in files be visible, and told."""
        for sink in self.sinks:
            log_of(sink).writer.wait()
            sink.write_status(1e15)

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()

    def block(self, epoch: int, part: int, rows: dict[int, float], dead: list[int], **told: int) -> Block:
        columns: dict[str, np.ndarray] = {
            "key": np.array(list(rows), np.int64),
            "row": np.array([[value] * self.width for value in rows.values()], np.float32).reshape(-1, self.width),
            "del_key": np.array(dead, np.int64),
            "ctl": control(arrival=1, **told),
        }
        if self.kind == "string" and rows:
            names = [self.names.get(key, f"v{key}").encode() for key in rows]
            columns["m_key"] = columns["key"]
            columns["m_off"] = np.cumsum([0] + [len(name) for name in names]).astype(np.int64)
            columns["m_name"] = np.frombuffer(b"".join(names), np.uint8)
        if part == 0:
            for name, value in zip(POSITIONS, (0, 0, 10 * epoch, 10), strict=True):
                columns[name] = np.array([value], DTYPES[name])
        return Block(Header(ROWS, epoch, 1, 0), {name: one for name, one in columns.items() if one.size})


def linear(width: int, out: int) -> dict[str, object]:
    return {"type": "linear", "in_channels": width, "out_channels": out, "bias": True}
