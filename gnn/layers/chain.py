"""A chain of dense layers, made ready to run on rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from freshet.gnn.declarations import DenseLayer, Identity, Linear
from freshet.gnn.model import ModelError, WeightedModel
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.rows import steps
from freshet.gnn.rows.chains import chain_width


class Chain:
    """Dense layers applied one after the other; a row's bits depend on that row alone.

    Shapes: rows (n, in_width) float32 in, (n, out_width) float32 C-contiguous out.
    """

    def __init__(self, model: WeightedModel, layers: Sequence[DenseLayer], prefixes: Sequence[str]) -> None:
        """Take the layers, and for each the prefix of its weights' names in the model."""
        pairs = zip(layers, prefixes, strict=True)
        kept = [(layer, name) for layer, name in pairs if not isinstance(layer, Identity)]
        self.types = [layer.type for layer, _ in kept]
        self._steps = [_step(model, layer, name) for layer, name in kept]

    def __len__(self) -> int:
        """Return the number of steps; an empty chain does nothing."""
        return len(self._steps)

    def apply(self, rows: Rows, *, own: bool) -> Rows:
        """Run the chain; `own` allows it to overwrite the given rows. An empty chain returns them as they are."""
        for makes_new, step in self._steps:
            if not own and not makes_new:
                rows = np.array(rows, np.float32, order="C")
            rows = step(rows)
            own = True
        return rows


@dataclass(frozen=True, eq=False)
class LogitsHead:
    """Layers that make logits of an embedding, and the width of these, 0 where there are none."""

    chain: Chain
    width: int

    @staticmethod
    def of(model: WeightedModel, layers: Sequence[DenseLayer], prefix: str, in_width: int) -> LogitsHead:
        """Return the head of these layers, which reads embeddings of `in_width`; none of none."""
        chain = Chain(model, layers, [f"{prefix}.{i}" for i in range(len(layers))])
        return LogitsHead(chain, chain_width(layers, in_width, prefix) if layers else 0)

    def logits(self, embedding: Rows) -> Rows:
        """Return the head's output for embedding rows; (n, 0) without layers."""
        if not self.width:
            return np.empty((embedding.shape[0], 0), np.float32)
        return self.chain.apply(np.ascontiguousarray(embedding, np.float32), own=False)


def linear(x: Rows, weight_t: Rows, bias: Rows | None) -> Rows:
    """Return x @ weight_t + bias in new rows."""
    out = matmul(x, weight_t)
    if bias is not None:
        out += bias
    return out


def transposed(weight: Rows) -> Rows:
    """Return a (out, in) weight as the (in, out) C-contiguous right side of a product."""
    return np.ascontiguousarray(weight.T)


def _step(model: WeightedModel, layer: DenseLayer, name: str) -> tuple[bool, Callable[[Rows], Rows]]:
    """Return whether the step makes new rows (else it works in place), and the step."""
    weights = model.weights_of(name)
    if isinstance(layer, Linear):
        weight_t, bias = transposed(weights["weight"]), weights.get("bias")
        return True, lambda x: linear(x, weight_t, bias)
    kernel = steps.in_place(layer, weights)
    if kernel is None:
        msg = f"layer type {layer.type!r} has no dense step; this is a defect of Freshet"
        raise ModelError(msg)
    return False, _in_place(kernel)


def _in_place(kernel: Callable[[Rows], None]) -> Callable[[Rows], Rows]:
    def step(x: Rows) -> Rows:
        kernel(x)
        return x

    return step
