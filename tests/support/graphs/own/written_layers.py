"""Written layers for relations, of torch modules in read_convs.py and pooled_convs.py: each aggregate, weights, too."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet import Layer, Max, Mean, Redone, Softmax, Sum, linear

Array = np.ndarray
_CONVS, _POOLED = "tests.support.graphs.read_convs", "tests.support.graphs.own.pooled_convs"


class _Linear(Layer):
    def lin(self, name: str, x: Array) -> Array:
        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])


class Gate(_Linear, of=f"{_CONVS}:GatedRelation"):
    @property
    def aggregate(self) -> Any:
        return {"mean": Mean(), "max": Max()}[self.options["aggr"]]

    @classmethod
    def options_of(cls, module: Any) -> dict[str, Any]:
        return {"aggr": module.aggr}

    def source(self, x: Array) -> Array:
        return np.concatenate([self.lin("value", x), self.lin("query", x)], axis=1)

    def target(self, x: Array) -> Array:
        return self.lin("key", x)

    def own(self, x: Array) -> Array:
        return self.lin("skip", x)

    def message(self, source: Array, target: Array) -> Array:
        half = source.shape[1] // 2
        return source[:, :half] / (1 + np.exp(-(source[:, half:] + target)))

    def update(self, aggregate: Array, own: Array) -> Array:
        return aggregate + own


class Attention(_Linear, of=f"{_CONVS}:AttentionRelation"):
    aggregate = Softmax(2)  # type: ignore[assignment]

    def source(self, x: Array) -> Array:
        return self.lin("left", x)

    def target(self, x: Array) -> Array:
        return self.lin("right", x)

    def message(self, source: Array, target: Array) -> Any:
        both = source + target
        scores = np.maximum(both, 0.2 * both).reshape(len(both), 2, -1) * self.weights["att"]
        return scores.sum(axis=2), source

    def update(self, aggregate: Array) -> Array:
        return self.lin("lin", aggregate)


class Attributed(_Linear, of=f"{_CONVS}:AttributedRelation"):
    aggregate = Max()

    def message(self, source: Array, attr: Array) -> Array:
        return np.tanh(self.lin("lin", np.concatenate([source, attr], axis=1)))

    def own(self, x: Array) -> Array:
        return x

    def update(self, aggregate: Array, own: Array) -> Array:
        return np.maximum(self.lin("upd", np.concatenate([own, aggregate], axis=1)), 0)


class Weighted(_Linear, of="torch_geometric.nn.conv.graph_conv:GraphConv"):
    aggregate = Sum()

    def message(self, source: Array, weight: Array) -> Array:
        return source * weight

    def own(self, x: Array) -> Array:
        return linear(x, self.weights["lin_root.weight"])

    def update(self, aggregate: Array, own: Array) -> Array:
        return self.lin("lin_rel", aggregate) + own


class Plain(_Linear, of=f"{_POOLED}:PlainRelation"):
    """Its message reads the source alone, and nothing reads the target."""

    aggregate = Sum()

    def message(self, source: Array) -> Array:
        return self.lin("lin", source)


class LowerMedian(Redone):
    def fold(self, messages: Array) -> Array:
        return np.sort(messages, axis=0)[(len(messages) - 1) // 2]


class Median(Plain, of=f"{_POOLED}:MedianRelation"):
    aggregate = LowerMedian()  # type: ignore[assignment]


class Highest(Redone):
    def fold(self, messages: Array) -> Array:
        return messages.max(axis=0)

    def merge(self, one: Array, other: Array) -> Array:
        return np.maximum(one, other)


class Largest(Plain, of=f"{_POOLED}:LargestRelation"):
    aggregate = Highest()  # type: ignore[assignment]
