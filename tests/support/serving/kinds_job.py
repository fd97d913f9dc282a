"""A job of users and items whose sinks are driven by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from freshet.state.block_columns import DTYPES, POSITIONS, ROWS, kind_prefix
from freshet.state.codec import Block, Header
from tests.support.graphs.kinds import RELATIONS, hetero, kinds_model, sage
from tests.support.serving.hand_job import HandJob
from tests.support.stages.sunk import control

WIDTHS = {"user": 3, "item": 4, "shop": 3}
KINDS = {"user": 6, "item": 4, "shop": 5}


class HandKinds(HandJob):
    """Its model returns users, items and shops; a row is its value and, in the last place, the epoch."""

    def model(self, seed: int, head: bool) -> Any:
        convs = {
            number: sage(KINDS[one["source"]], KINDS[one["target"]], WIDTHS[one["target"]])
            for number, one in enumerate(RELATIONS)
        }
        return kinds_model([hetero(convs)], list(WIDTHS), KINDS, seed=seed)

    def apply_kinds(self, epoch: int, **rows: dict[int, float]) -> None:
        """An epoch in which vertices of kinds get these values; an even key is in part 0."""
        for part, sink in enumerate(self.sinks):
            mine = {kind: {k: v for k, v in found.items() if k % 2 == part} for kind, found in rows.items()}
            sink.apply(epoch, [self.kinds_block(epoch, part, mine)])

    def kinds_block(self, epoch: int, part: int, rows: dict[str, dict[int, float]]) -> Block:
        columns: dict[str, np.ndarray] = {"ctl": control(arrival=1)}
        for number, kind in enumerate(KINDS):
            if found := rows.get(kind):
                prefix = kind_prefix(number)
                columns[f"{prefix}key"] = np.array(list(found), np.int64)
                columns[f"{prefix}row"] = np.array([row_of(kind, v, epoch) for v in found.values()], np.float32)
        if part == 0:
            for name, value in zip(POSITIONS, (0, 0, 10 * epoch, 10), strict=True):
                columns[name] = np.array([value], DTYPES[name])
        return Block(Header(ROWS, epoch, 1, 0), columns)


def row_of(kind: str, value: float, epoch: int) -> list[float]:
    return [value] * (WIDTHS[kind] - 1) + [float(epoch)]


class LastOfBoth(torch.nn.Module):
    """4,096 times the last number of the left row, and the last of the right one: exact up to 4,095 each."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return 4096 * left[:, -1] + right[:, -1]


class LastOfBothNegated(LastOfBoth):
    """Of another model: the same below zero."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return -super().forward(left, right)
