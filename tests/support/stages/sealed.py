"""A PartitionerStage with its keyed state, fed by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import orjson

from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.outcome import Outcome
from freshet.operators.parser.core import Origin, Parser
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.schema import Features
from freshet.state.codec import Block
from tests.support.simulation.dict_backend import DictBackend

WIDTH = 2


class Job:
    """A PartitionerStage of two parts with its keyed state, and what it sent by epoch."""

    def __init__(self, log: CutLog, entries: dict[str, bytes] | None = None, **config: Any) -> None:
        options = {name: config.pop(name) for name in ("forbid_typed_loops",) if name in config}
        letters = config.pop("letters", None)
        core = Partitioner(2, Features(WIDTH), PartitionerConfig(**options))
        settings = SealingConfig(**{"epoch_events": 4, "marker_interval_ms": 10, **config})
        self.stage = PartitionerStage(core, settings, log, None, letters, ("a.jsonl",))
        self.backend = DictBackend(entries)
        self.entries = self.backend.entries
        self.sent: dict[int, np.ndarray] = {}
        self.blocks: dict[int, list[Block]] = {}
        self.stage.restore(self.entries.items())
        for outcome in self.stage.begin():
            self.keep(outcome)

    def keep(self, outcome: Outcome) -> Outcome:
        self.backend.apply(outcome.puts, outcome.deletes)
        for message in outcome.messages:
            block = message.block
            assert isinstance(block, Block)
            assert block.header.epoch == message.epoch
            self.blocks.setdefault(message.epoch, []).append(block)
            self.sent[message.epoch] = block.columns["ctl"]
        return outcome

    def receive(self, count: int, now_ms: float = 0.0, first: int = 0) -> None:
        self.keep(self.stage.receive(edges(count, first), now_ms))

    @property
    def journal(self) -> list[int]:
        """Numbers of the first events of the journaled blocks."""
        return sorted(int(key.rsplit("/", 1)[1]) for key in self.entries if key.startswith("journal/"))

    @property
    def journal_bytes(self) -> int:
        return sum(len(value) for key, value in self.entries.items() if key.startswith("journal/"))


def events(records: Iterable[dict[str, Any]], first: int = 0) -> bytes:
    """The lines from number `first` on."""
    data = b"\n".join(orjson.dumps(record) for record in records)
    return Parser(Features(WIDTH), None, None).parse_jsonl(data, Origin(), first)[0].encode()


def edges(count: int, first: int = 0) -> bytes:
    return events(({"op": "add_edge", "src": k, "dst": k + 1} for k in range(first, first + count)), first)


def ends(log: CutLog) -> list[int]:
    return [cut.end for cut in log.cuts.values()]
