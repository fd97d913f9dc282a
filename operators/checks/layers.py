"""All checks of the layers of a model, in the order in which they find the most: aggregate, rows, claims, streams."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from freshet.gnn.answers import ClaimAnswer, LayerAnswers, is_refuted
from freshet.gnn.any_plan import compile_any, unmerged
from freshet.gnn.kind_layers.plans import RelationPlan
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.layers.base import LayerPlan
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.own.aggregates import Redone
from freshet.gnn.own.layer import MESSAGE_READS
from freshet.gnn.own.running import RunningLayer
from freshet.gnn.plan import Context, compile_plan
from freshet.gnn.synopses.of_messages import Synopsis
from freshet.operators.checks.aggregates import PER_SIZE, check_aggregate
from freshet.operators.checks.between import Related
from freshet.operators.checks.calls import check_calls
from freshet.operators.checks.kept import KeptAggregate
from freshet.operators.checks.proofs.programs import with_facts
from freshet.operators.checks.proofs.solving import LINEAR, NO_TARGET
from freshet.operators.checks.proofs.written import with_proofs
from freshet.operators.checks.rows import RowFunction, check_all_rows
from freshet.operators.checks.streams import PARTS, STREAMS, StreamCheck

MODEL = "model"


def check_model(model: Model, *, seed: int = 0) -> list[LayerAnswers]:
    """Return what was found about each layer that aggregates, and about the model on streams.

    Raises: ModelError for a conv that has no incremental form.
    """
    layers = compile_plan(model).layers
    found = [
        LayerAnswers(f"layer {number} {layer.name}", check_layer(layer, seed=seed, facts=True))
        for number, layer in enumerate(layers, 1)
    ]
    return [*found, check_streams(model, seed=seed)]


def check_streams(model: Model | KindsModel, *, seed: int = 0, streams: int = STREAMS) -> LayerAnswers:
    """Return what was found about a model on some small streams, in several parts where its aggregates merge.

    Raises: ModelError for a conv that has no incremental form.
    """
    check = StreamCheck.of(model, 1 if unmerged(compile_any(model)) else PARTS, is_own)
    return LayerAnswers(MODEL, [check.answer(seed=seed, streams=streams)])


def check_layer(
    layer: LayerPlan | RelationPlan, *, seed: int = 0, per_size: int = PER_SIZE, facts: bool = False
) -> list[ClaimAnswer]:
    """Return what was found about a layer by itself, or about the conv of a relation.

    `per_size` cases of each number of messages are searched. `facts`: also of a message that is a program, whether it
    is linear in its source, and whether it reads its target; a solver may take some seconds for it.
    """
    answers, running = check_all_rows(row_functions(layer), seed=seed), running_of(layer)
    if running is not None and not is_refuted(answers):
        answers.append(check_calls(running, seed=seed))
    if is_refuted(answers):
        return answers  # what follows would differ from one time to the next
    if running is not None and isinstance(running.aggregate, Redone):
        message, state, made = running.widths.message, running.state_width, running.widths.aggregate
        kept = KeptAggregate.written(running, message, state, made)
    else:
        kept = KeptAggregate.of(related(layer))
    found = [*check_aggregate(kept, seed=seed, per_size=per_size), *answers]
    if running is None:
        found += by_form(layer.synopsis)
        declared = getattr(layer.conv if isinstance(layer, RelationPlan) else layer, "declared", None)
        return with_facts(declared, found) if facts and declared is not None else found
    return with_proofs(running, [*found, *(one for one in by_form(layer.synopsis) if one.claim == NO_TARGET)])


def related(layer: LayerPlan | RelationPlan) -> Related:
    """Return the relation of a layer, in one kind one whose targets send the rows that messages read of them.

    Its sources are never its targets, so it has no self-loops.
    """
    width = layer.message_width
    target = width if layer.synopsis.reads_targets else 0
    target = layer.target_width if isinstance(layer, RelationPlan) else target
    return Related(width, target, layer.synopsis, replace(layer.edge, skip_loops=False))


def running_of(layer: LayerPlan | RelationPlan) -> RunningLayer | None:
    """Return the functions of a layer that a user wrote, or of such a conv of a relation; None for another."""
    return getattr(layer.conv if isinstance(layer, RelationPlan) else layer, "running", None)


def is_own(layer: LayerPlan | RelationPlan) -> bool:
    """Return whether users wrote the layer, as a class or as a conv that was read."""
    return running_of(layer) is not None or layer.name == "message_conv"


def row_functions(layer: LayerPlan | RelationPlan) -> list[RowFunction]:
    """Return the functions of rows that a layer has: those that a user wrote, or what it sends, makes and updates.

    Of a relation's conv, what makes messages by edge, where something does, and what makes rows of their aggregate.
    """
    if (running := running_of(layer)) is not None:
        return _written(running)
    return _of_relation(layer) if isinstance(layer, RelationPlan) else _built_in(layer)


def _written(running: RunningLayer) -> list[RowFunction]:
    widths, reads, none = running.widths, running.reads, np.empty((0, 0), np.float32)
    of = running.function_widths()
    found = [RowFunction("source", running.source, of["source"])]
    found += [RowFunction("target", running.target, of["target"])] if widths.target else []
    found += [RowFunction("own", running.own, of["own"])] if widths.own else []

    def message(*given: Rows) -> Rows:
        rows = dict(zip(reads, given, strict=True))
        return running.message(*(rows.get(name, none) for name in MESSAGE_READS))

    def read(messages: Rows) -> Rows:
        return running.read(np.stack([running.fold(one) for one in messages[:, None]]))

    def update(aggregate: Rows, own: Rows | None = None) -> Rows:
        return running.update(aggregate, none if own is None else own)

    found.append(RowFunction("message", message, of["message"]))
    found += [RowFunction("read", read, (widths.message,))] if "read" in running.functions() else []
    updated = (widths.aggregate, widths.own) if widths.own else (widths.aggregate,)
    return [*found, RowFunction("update", update, updated)]


def _built_in(layer: LayerPlan) -> list[RowFunction]:
    own = layer.message_width if layer.self_is_message else layer.self_width

    def update(states: Rows, rows: Rows | None = None) -> Rows:
        return layer.update(states, np.empty((len(states), 0), np.float32) if rows is None else rows, _contexts(states))

    found = [RowFunction("what a source sends", lambda x: layer.send(x, _contexts(x)), (layer.in_width,))]
    found.append(RowFunction("update", update, (layer.synopsis_width, own) if own else (layer.synopsis_width,)))
    if (network := layer.network) is not None:
        widths = layer.message_width, layer.message_width, layer.edge.columns
        found.append(RowFunction("message", network.of, widths))
    return found


def _of_relation(relation: RelationPlan) -> list[RowFunction]:
    conv, network = relation.conv, relation.network

    def update(states: Rows, *own: Rows) -> Rows:
        return conv.update(states, own, np.full(len(states), 3, np.int32))

    found = [RowFunction("update", update, (relation.synopsis_width, *(piece.width for piece in conv.own)))]
    if network is not None:
        widths = relation.message_width, relation.target_width, relation.edge.columns
        found.append(RowFunction("message", network.of, widths))
    return found


def _contexts(rows: Rows) -> Context:
    """Return a context of three in-edges for every row."""
    n = len(rows)
    count, degree = np.full(n, 3, np.int32), np.full(n, 3.0)
    return Context(count, degree, np.full(n, np.nan, np.float32), count, degree)


def by_form(synopsis: Synopsis) -> list[ClaimAnswer]:
    """Return what the form of a layer's aggregate proves."""
    if synopsis.reads_targets:
        return []
    found = [ClaimAnswer(NO_TARGET, "proved", case="by its form: nothing of a target reaches it")]
    if synopsis.is_linear:
        found.append(ClaimAnswer(LINEAR, "proved", case="by its form: it is what the source sends, times a weight"))
    return found
