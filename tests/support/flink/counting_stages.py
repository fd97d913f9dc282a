"""Stages that only count, with the API of the real ones: they show that every number arrives once and in its epoch.

Event n is the number n. A Storage passes half of what it received on to the next part's Tail and the rest to the next
part's next Storage; the Sink writes the sum of each epoch to a file. State is kept as the real stages do, loosely: a
stage writes its total at every 10th epoch, and the Partitioner replays the cuts since then after a restore.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freshet.operators.dataflow import PARSER, PARTITIONER, SINK, STORAGE, TAIL, Dataflow
from freshet.operators.outcome import Message, Outcome
from freshet.operators.telemetry.figures import Figures
from freshet.operators.telemetry.level import Level

_HEADER = struct.Struct("<qiqq")  # epoch, sender part, value; first event or time of sealing (ns)
MARKER = 10


def _message(to: str, part: int, block: bytes) -> Message:
    return Message(to, part, 0, block)


class _Keyed:
    """What every stage with state has, and these do without."""

    levels: Mapping[str, Level] = {}
    memory_bytes = 0
    sums = None
    figures = Figures()

    def preload(self) -> None:
        pass

    def close(self) -> None:
        pass


def _number(value: int) -> bytes:
    return value.to_bytes(16, "little", signed=True)


def _pack(epoch: int, sender: int, value: int, extra: int, size: int) -> bytes:
    return _HEADER.pack(epoch, sender, value, extra).ljust(size, b"\0")


def expected_total(config: dict[str, Any], chunks: int) -> int:
    events = chunks * config["chunk_events"]
    return events * (events - 1) // 2


class Parser:
    dead_letters = None

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def close(self) -> None:
        pass

    def parse(self, number: int) -> list[bytes]:
        count = self.config["chunk_events"]
        if number >= self.config.get("slow_from", 0):
            time.sleep(self.config.get("chunk_ms", 0) / 1e3)
        return [_pack(number, 0, count, number * count, self.config.get("sizes", {}).get("parser", 0))]


class Partitioner(_Keyed):
    """Seals an epoch every `epoch_events` events, and with `by_time` at a tick; state: `cut/<epoch>` and `seen`."""

    dead_letters = None

    def __init__(self, config: dict[str, Any]) -> None:
        self.config, self.parts = config, config["parts"]
        self.size = config.get("sizes", {}).get("partitioner", 0)
        self.first = self.last = self.epoch = 0  # events of the open epoch: first..last-1
        self.cuts: dict[int, tuple[int, int]] = {}

    @property
    def waiting(self) -> bool:
        return self.last > self.first

    holds_back = False

    def is_due(self, now_ms: float) -> bool:
        return self.waiting and self.config.get("by_time", False)

    def watch(self, under_way: Any) -> None:
        pass

    def restore(self, items: Any) -> None:
        for key, value in items:
            low, high = struct.unpack("<qq", value)
            if key == "seen":
                self.first, self.last = low, high
            else:
                self.cuts[int(key[4:])] = (low, high)
        self.epoch = max(self.cuts, default=0)

    def begin(self, now_ms: float = 0.0) -> Any:
        with (Path(self.config["results"]) / "begins.txt").open("a") as file:
            file.write(f"{self.epoch}\n")
        for epoch in range(self.epoch - self.epoch % MARKER + 1, self.epoch + 1):
            yield Outcome(self._messages(epoch))

    def receive(self, block: bytes, now_ms: float) -> Outcome:
        _, _, count, first = _HEADER.unpack_from(block)
        if first != self.last:
            raise ValueError(f"chunk begins at {first}, expected {self.last}")
        outcome = Outcome()
        self.last = first + count
        while self.last - self.first >= self.config["epoch_events"]:
            self._seal(outcome, self.first + self.config["epoch_events"])
        outcome.of(0).puts.append(("seen", struct.pack("<qq", self.first, self.last)))
        return outcome

    def tick(self, now_ms: float) -> Outcome:
        outcome = Outcome()
        if self.waiting:
            self._seal(outcome, self.last)
            outcome.of(0).puts.append(("seen", struct.pack("<qq", self.first, self.last)))
        return outcome

    def finish(self) -> Outcome:
        return self.tick(0.0)

    def _seal(self, outcome: Outcome, end: int) -> None:
        self.epoch += 1
        self.cuts[self.epoch] = (self.first, end)
        outcome.of(0).puts.append((f"cut/{self.epoch}", struct.pack("<qq", self.first, end)))
        outcome.messages += self._messages(self.epoch)
        self.first = end
        if self.epoch % MARKER == 0:
            outcome.of(0).deletes.extend([f"cut/{old}" for old in range(max(1, self.epoch - MARKER), self.epoch)])
            self.cuts = {self.epoch: self.cuts[self.epoch]}

    def _messages(self, epoch: int) -> list[Message]:
        first, end = self.cuts[epoch]
        sealed = time.time_ns()
        values = [0] * self.parts
        for number in range(first, end) if self.size == 0 else ():
            values[number % self.parts] += number
        return [
            _message(STORAGE, p, _pack(epoch, 0, values[p], sealed, self.size // self.parts)) for p in range(self.parts)
        ]


class Stage(_Keyed):
    """A Storage, Tail or Sink."""

    def __init__(self, config: dict[str, Any], operator: str, part: int) -> None:
        flow = Dataflow(config["layers"], config["parts"])
        self.config, self.operator, self.part, self.parts = config, operator, part, config["parts"]
        self.senders, self.receivers = flow.blocks_per_epoch(operator), flow[operator].receivers
        self.size = config.get("sizes", {}).get(operator, 0) // self.parts
        self.pages = config.get("pages", {"count": 0, "size": 0})
        self.inbox: dict[int, list[bytes]] = {}
        self.total, self.done = 0, 0

    @property
    def epoch(self) -> int:
        return self.done

    def restore(self, items: Any) -> None:
        state = dict(items)
        if "total" in state:
            self.total = int.from_bytes(state["total"], "little", signed=True)
            self.done = int.from_bytes(state["done"], "little", signed=True)

    def offer(self, block: bytes) -> list[bytes] | None:
        epoch = _HEADER.unpack_from(block)[0]
        blocks = self.inbox.setdefault(epoch, [])
        blocks.append(block)
        return self.inbox.pop(epoch) if len(blocks) == self.senders else None

    def act(self, blocks: list[bytes]) -> Outcome:
        epoch = _HEADER.unpack_from(blocks[0])[0]
        if epoch != self.done + 1:
            raise ValueError(f"part {self.part}: epoch {epoch}, expected {self.done + 1}")
        self._maybe_fail(epoch)
        time.sleep(self.config.get("act_ms", 0) / 1e3)
        value = sum(_HEADER.unpack_from(block)[2] for block in blocks)
        self.total, self.done = self.total + value, epoch
        sealed = max(_HEADER.unpack_from(block)[3] for block in blocks)
        outcome = Outcome(self._sent(epoch, value, sealed))
        if epoch % MARKER == 0:
            outcome.of(self.part).puts.extend([("total", _number(self.total)), ("done", _number(epoch))])
        for page in range(self.pages["count"]):
            outcome.of(self.part).puts.append((f"page/{(epoch * 7 + page) % 500}", bytes(self.pages["size"])))
        if self.operator == SINK:
            with (Path(self.config["results"]) / f"sink-{self.part}.txt").open("a") as file:
                now = time.time_ns()
                file.write(f"{epoch} {value} {now / 1e9} {(now - sealed) / 1e6:.2f}\n")
        return outcome

    def _sent(self, epoch: int, value: int, sealed: int) -> list[Message]:
        near = (self.part + 1) % self.parts
        tail = value // 2 if TAIL in self.receivers else 0
        messages = []
        for q in range(self.parts):
            for to in self.receivers:
                share, size = (tail, 0) if to == TAIL else (value - tail, self.size)
                messages.append(_message(to, q, _pack(epoch, self.part, share * (q == near), sealed, size)))
        return messages

    def _maybe_fail(self, epoch: int) -> None:
        for fault in self.config.get("faults", []):
            if fault["operator"] == self.operator and fault["epoch"] == epoch and self.part == fault.get("part", 0):
                count = Path(self.config["results"]) / f"fault-{self.operator}-{epoch}"
                seen = int(count.read_text()) if count.exists() else 0
                if seen < fault.get("times", 1):
                    count.write_text(str(seen + 1))
                    raise RuntimeError(fault.get("message", "an operator failed on purpose"))


def make(config: dict[str, Any], operator: str, part: int) -> Any:
    if operator == PARSER:
        return Parser(config)
    if operator == PARTITIONER:
        return Partitioner(config)
    return Stage(config, operator, part)
