"""The weights of a model that training leaves as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from freshet.gnn.convs.program import ConstantStep, ProgramStep, RowsStep
from freshet.gnn.declarations import MessageConv, PNAConv
from freshet.gnn.kinds.declarations import ByKind, HeteroConv, row_layers
from freshet.gnn.kinds.learned import DIGESTS, IDS, PREFIX
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.kinds.names import head_name
from freshet.gnn.model import Model
from freshet.gnn.rows.layer import Layer
from freshet.gnn.rows.norms import FrozenNorm


def statistics_of(model: Model | KindsModel) -> set[str]:
    """Return the names of the weights that are statistics of the graph of the training, ids, or numbers in programs.

    Of a program's constants those of one number, since a number that the code has looks like one that was learned.
    """
    found = {f"{PREFIX}{kind}.{name}" for kind in getattr(model, "learned", ()) for name in (IDS, DIGESTS)}
    for prefix, layer in _layers(model):
        found.update(_of_layer(layer, prefix))
    programs = {f"link_heads.{i}": one.program for i, one in enumerate(getattr(model, "link_heads", ()))}
    if isinstance(model, Model) and model.link_head is not None:
        programs["link_head"] = model.link_head.program
    for prefix, program in programs.items():
        found.update(_of_program(program, prefix))
    return found & model.tensors().keys()


def _layers(model: Model | KindsModel) -> Iterator[tuple[str, Layer]]:
    """Yield all layers of a model, with what their weights' names begin with."""
    if isinstance(model, Model):
        yield from _numbered(model.layers, "layers")
        yield from _numbered(model.head, "head")
        return
    for i, layer in enumerate(model.layers):
        if isinstance(layer, HeteroConv):
            yield from _numbered([one.conv for one in layer.convs], f"layers.{i}.convs")
        elif isinstance(layer, ByKind):
            for kind, layers in row_layers(layer).items():
                yield from _numbered(layers, f"layers.{i}.layers.{kind}")
    for kind, head in model.heads.items():
        yield from _numbered(head, head_name(kind))


def _numbered(layers: Sequence[Layer], prefix: str) -> Iterator[tuple[str, Layer]]:
    return ((f"{prefix}.{i}", layer) for i, layer in enumerate(layers))


def _of_layer(layer: Layer, prefix: str) -> Iterator[str]:
    if isinstance(layer, FrozenNorm):
        yield from (f"{prefix}.{name}" for name in layer.tensors())
    for name in ("nn", "act"):
        for begin, inner in _numbered(getattr(layer, name, ()), f"{prefix}.{name}"):
            yield from _of_layer(inner, begin)
    if isinstance(layer, PNAConv):
        yield from (f"{prefix}.average_degree", f"{prefix}.average_log_degree")
        for t in range(layer.towers):
            for name, layers in (("pre", layer.pre), ("post", layer.post)):
                for begin, inner in _numbered(layers, f"{prefix}.{name}.{t}"):
                    yield from _of_layer(inner, begin)
    if isinstance(layer, MessageConv):
        yield from _of_program(layer.program, f"{prefix}.program")
        yield from _of_program(layer.update or (), f"{prefix}.update")


def _of_program(program: Sequence[ProgramStep], prefix: str) -> Iterator[str]:
    for i, step in enumerate(program):
        if isinstance(step, RowsStep):
            yield from _of_layer(step.layer, f"{prefix}.{i}")
        elif isinstance(step, ConstantStep) and step.width == 1:
            yield f"{prefix}.{i}.value"
