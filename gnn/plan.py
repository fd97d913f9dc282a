"""A model compiled for incremental work: one LayerPlan per conv, dense layers folded into their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from freshet.gnn.answers import LayerAnswers
from freshet.gnn.declarations import AnyLayer, Conv
from freshet.gnn.kinds.learned import LearnedRows
from freshet.gnn.layers import registry
from freshet.gnn.layers.base import Context, Epilogue, LayerPlan
from freshet.gnn.layers.carrying import CarryingPlan, carries_of
from freshet.gnn.layers.chain import Chain, LogitsHead
from freshet.gnn.layers.segment import Segment
from freshet.gnn.model import Model, ModelError
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.rows.chains import chain_widths
from freshet.schema import Features

__all__ = ["Context", "Epilogue", "LayerPlan", "Plan", "compile_plan"]


@dataclass(frozen=True)
class Plan:
    """Executable form of a model: `layers[0]` is layer 1, which reads raw features; the last x is the embedding."""

    layers: list[LayerPlan]
    features: Features
    out_width: int
    edge_types: list[str]
    sha256: str
    head: LogitsHead
    checks: Sequence[LayerAnswers] = ()
    """Findings of the export about the layers."""
    learned: Sequence[LearnedRows | None] = ()
    """There are learned rows by kind alone."""

    @property
    def out(self) -> dict[str, int]:
        """Width of the embeddings of the one kind, which has no name."""
        return {"": self.out_width}

    @property
    def head_width(self) -> int:
        """Width of the logits, 0 if the model has no head."""
        return self.head.width

    def logits(self, embedding: Rows) -> Rows:
        """Return the head's output for embedding rows; (n, 0) if the model has no head."""
        return self.head.logits(embedding)

    def warm_up(self) -> None:
        """Run every layer once on a single row, so that kernels are compiled before the first event waits for them."""
        one, weight = np.ones(1, np.int32), np.ones(1, np.float64)
        ctx = Context(one, weight, np.full(1, np.nan, np.float32), one, weight)
        for layer in self.layers:
            sent = layer.send(np.zeros((1, layer.in_width), np.float32), ctx)
            own = sent if layer.self_is_message else sent[:, layer.message_width :]
            layer.update(np.zeros((1, layer.synopsis_width), np.float32), np.ascontiguousarray(own), ctx)
        self.logits(np.zeros((1, self.out_width), np.float32))


def compile_plan(model: Model) -> Plan:
    """Return the plan of a model: dense layers before the first conv go into its send, later ones into an update.

    Raises: ModelError for a conv that has no incremental form.
    """
    at = [i for i, layer in enumerate(model.layers) if isinstance(layer, Conv)]
    features = model.features
    widths, carries = chain_widths(model.layers, features.width, "layers"), carries_of(model.layers, features.width)
    layers: list[LayerPlan] = []
    for number, (i, carry) in enumerate(zip(at, carries, strict=True)):
        before = range(at[0]) if number == 0 else range(0)
        end = at[number + 1] if number + 1 < len(at) else len(model.layers)
        after = range(i + 1, end)
        if carry is None:
            plan = _conv_plan(model, i, _chain(model, before), _chain(model, after))
            plan.in_width = features.width if number == 0 else plan.in_width
            plan.out_width = widths[end - 1]
        else:
            conv = _conv_plan(model, i, _chain(model, range(0)), _chain(model, range(0)))
            plan = CarryingPlan(conv, carry, _segment(model, before), _segment(model, after))
        layers.append(plan)
    head = LogitsHead.of(model, model.head, "head", model.out_width)
    return Plan(layers, features, model.out_width, list(model.edge_types), model.sha256(), head, model.checks)


def _chain(model: Model, where: Sequence[int]) -> Chain:
    return Chain(model, [model.layers[i] for i in where], [f"layers.{i}" for i in where])  # type: ignore[misc]


def _segment(model: Model, where: Sequence[int]) -> Segment:
    return Segment(model, [model.layers[i] for i in where], [f"layers.{i}" for i in where])


def _conv_plan(model: Model, index: int, before: Chain, after: Chain) -> LayerPlan:
    spec: AnyLayer = model.layers[index]
    make = registry.PLANS.get(type(spec))
    if make is None:
        msg = f"layers.{index}: {spec.type} has no incremental form; convs are {', '.join(registry.names())}"
        raise ModelError(msg)
    return make(spec, model, f"layers.{index}", before, after)
