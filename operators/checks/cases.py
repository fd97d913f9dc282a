"""Small cases of messages to one target: how they are drawn, made smaller, and shown.

Numbers are small integers, of which sums, extrema and counts are exact in float32: what differs is wrong, not rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from freshet.gnn.edge_reads import NOTHING, EdgeReads
from freshet.gnn.smallest import VALUES, Row, halves, shown, simpler_rows

EPOCHS = 3  # messages come in the first or second, change in the second, and go in the second or third
FEW = 12  # messages that a person reads one by one


@dataclass(frozen=True)
class OneMessage:
    """A message by what it is made of: the row of its source, and the values of its edge.

    It comes in an epoch, to a part; it may go in a later one (0: it stays), and its source may send `then` from the
    second epoch on.
    """

    row: Row
    weight: float = 1.0
    attr: Row = ()
    part: int = 0
    comes: int = 1
    goes: int = 0
    then: Row | None = None

    def is_there(self, epoch: int) -> bool:
        """Return whether it has come and not gone at the end of an epoch."""
        return self.comes <= epoch and not 0 < self.goes <= epoch

    def sent(self, epoch: int) -> Row:
        """Return what its source sends in an epoch."""
        return self.row if self.then is None or epoch < 2 else self.then


@dataclass(frozen=True)
class MessageCase:
    """Messages to one target, in the order in which they come; `turned` is the target's row from epoch 2 on."""

    messages: tuple[OneMessage, ...]
    target: Row = ()
    turned: Row | None = None

    def read(self, epoch: int) -> Row:
        """Return what messages read of the target in an epoch."""
        return self.target if self.turned is None or epoch < 2 else self.turned

    def __str__(self) -> str:
        count = len(self.messages)
        more = [f"... {count} messages in all"] if count > FEW else []
        return "\n".join([*self._of_target(), *map(_line, self.messages[:FEW]), *more])

    def _of_target(self) -> list[str]:
        if not self.target:
            return []
        turned = "" if self.turned is None else f", then {shown(self.turned)}"
        return [f"target {shown(self.target)}{turned}"]


def _line(one: OneMessage) -> str:
    words = [f"message {shown(one.row)}"]
    words += [f"weight {one.weight:g}"] if one.weight != 1 else []
    words += [f"attributes {shown(one.attr)}"] if one.attr else []
    words += [f"in part {one.part}"] if one.part else []
    words += ["in epoch 2"] if one.comes > 1 else []
    words += [f"then {shown(one.then)}"] if one.then is not None else []
    words += [f"taken back in epoch {one.goes}"] if one.goes else []
    return ", ".join(words)


@dataclass(frozen=True)
class Law:
    """Form of the cases of a claim: messages in several parts, some that go or change, some that come later."""

    claim: str
    parts: int = 1
    goes: bool = False
    later: bool = True


@dataclass(frozen=True)
class MessageWidths:
    """Widths of what a message reads of its source and its target, and what it reads of its edge."""

    source: int
    target: int = 0
    edge: EdgeReads = NOTHING


def draw(law: Law, widths: MessageWidths, messages: int, count: int, rng: np.random.Generator) -> list[MessageCase]:
    """Return cases of that many messages."""
    return [_case(law, widths, messages, rng) for _ in range(count)]


def _case(law: Law, widths: MessageWidths, messages: int, rng: np.random.Generator) -> MessageCase:
    def row(width: int) -> Row:
        return tuple(rng.choice(VALUES, width).tolist())

    def chance(of: float) -> bool:
        return bool(rng.random() < of)

    def one() -> OneMessage:
        comes = 2 if law.later and chance(0.3) else 1
        return OneMessage(
            row=row(widths.source),
            weight=float(rng.choice([1.0, 2.0, -1.0])) if widths.edge.weighted else 1.0,
            attr=row(widths.edge.attributes),
            part=int(rng.integers(law.parts)),
            comes=comes,
            goes=int(rng.integers(comes + 1, EPOCHS + 1)) if law.goes and chance(0.4) else 0,
            then=row(widths.source) if law.goes and chance(0.3) else None,
        )

    turned = row(widths.target) if law.goes and widths.target and chance(0.3) else None
    return MessageCase(tuple(one() for _ in range(messages)), row(widths.target), turned)


def smaller(case: MessageCase) -> Iterator[MessageCase]:
    """Yield cases that are a step smaller: a message less, or one thing of it simpler."""
    for gone in halves(len(case.messages)):
        yield replace(case, messages=case.messages[: gone.start] + case.messages[gone.stop :])
    if len(case.messages) > FEW:
        return
    if len(case.messages) == 1:
        yield replace(case, messages=())
    for i, one in enumerate(case.messages):
        for simpler in _simpler(one):
            yield replace(case, messages=(*case.messages[:i], simpler, *case.messages[i + 1 :]))
    if case.turned is not None:
        yield replace(case, turned=None)
        yield from (replace(case, turned=row) for row in simpler_rows(case.turned))
    yield from (replace(case, target=row) for row in simpler_rows(case.target))


def _simpler(one: OneMessage) -> Iterator[OneMessage]:
    if one.goes:
        yield replace(one, goes=0)
    if one.then is not None:
        yield replace(one, then=None)
        yield from (replace(one, then=row) for row in simpler_rows(one.then))
    if one.comes > 1:
        yield replace(one, comes=1)
    if one.part:
        yield replace(one, part=0)
    if one.weight != 1:
        yield replace(one, weight=1.0)
    yield from (replace(one, row=row) for row in simpler_rows(one.row))
    yield from (replace(one, attr=row) for row in simpler_rows(one.attr))
