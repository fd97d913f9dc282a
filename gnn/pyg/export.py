"""Trained PyTorch Geometric modules become model folders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch.nn import Module

from freshet.extras import need
from freshet.gnn.answers import LayerAnswers
from freshet.gnn.declarations import Conv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model, ModelError, build_model, explain
from freshet.gnn.pyg.check import compared_on, on_one_thread, ours_of, theirs_of
from freshet.gnn.pyg.declared import DeclaredModule, checked_model
from freshet.gnn.pyg.errors import DIFFERS, INSIDE, OUT_EDGES, UNREAD, refusal_of, refuse
from freshet.gnn.pyg.finite import naming_weights, refuse_weights
from freshet.gnn.pyg.first_width import first_width
from freshet.gnn.pyg.forward.asked import FORWARD, Asked
from freshet.gnn.pyg.forward.categories import LOOKED_UP, ways_of_categories
from freshet.gnn.pyg.forward.fx import dense_steps, refuse_jumps
from freshet.gnn.pyg.forward.parameters import columns_of
from freshet.gnn.pyg.forward.propagated import is_own, refuse_other_ways
from freshet.gnn.pyg.forward.trace import refuse_wrapped, trace
from freshet.gnn.pyg.forward.type_columns import type_columns
from freshet.gnn.pyg.forward.typed_data import with_types_by_name
from freshet.gnn.pyg.forward.untouched import plain_copy
from freshet.gnn.pyg.graphs import Graphs
from freshet.gnn.pyg.kinds.building import KindHead
from freshet.gnn.pyg.kinds.calling import ModuleCall, edge_sets_of, reads_kinds, types_left
from freshet.gnn.pyg.kinds.export import KindsAsked, kinds_model
from freshet.gnn.pyg.kinds.looking_up import StoredGraph
from freshet.gnn.pyg.kinds.metadata import WITHOUT_KINDS, Parts
from freshet.gnn.pyg.kinds.running import Run
from freshet.gnn.pyg.kinds.widths import Widths
from freshet.gnn.pyg.layers import convert_chain
from freshet.gnn.pyg.learned_sums import with_learned_sums
from freshet.gnn.pyg.optional_weights import warn_of_weights
from freshet.gnn.pyg.own.differing import compared
from freshet.gnn.pyg.own.pairs import with_link_heads
from freshet.gnn.pyg.running_sums import with_running_sums
from freshet.gnn.pyg.statistics import Statistics, gather, plain_inputs, with_columns_of_types
from freshet.gnn.pyg.steps import ExportError, OwnRun, Step, Traced, Weights, head_of
from freshet.gnn.pyg.writing import write_model

__all__ = ["ExportError", "export_model"]

Checks = Callable[[Model | KindsModel], list[LayerAnswers]]
_ONE_AT_A_TIME = threading.Lock()  # what traces modules changes things that all threads share: how they are called


def export_model(
    module: Module,
    folder: str | Path,
    edge_types: Sequence[str] | None = None,
    stats_from: Any = None,
    head: str | Mapping[str, str] | None = None,
    features: int | Mapping[str, int] | None = None,
    output: int | str | None = None,
    method: str = "forward",
    edge_features: int | None = None,
    metadata: Any = None,
    mirrors: Mapping[Any, Any] | None = None,
    ids: Any = None,
    checks: Checks | None = None,
    overwrite: bool = False,
    link_head: Any = None,
) -> Model | KindsModel:
    """Write a trained module as a model folder and return the model.

    The module is a torch_geometric.nn model (GCN, GraphSAGE, GIN, GAT, PNA, EdgeCNN, LightGCN), a
    torch_geometric.nn.Sequential, one of its convs, a torch.nn.ModuleList of layers in order, or a module whose
    forward(x, edge_index[, edge_weight]) torch.fx can trace; a layer may read the rows of any earlier one. It is left
    as it is. Dropout is dropped, BatchNorm keeps the statistics it was trained with. Where the module does not hand
    edge weights on to a conv, the job ignores them there too. Of parallel columns in edge_index each is a message of
    its own where a job's edges have keys; in a job without keys the last one of a (source, destination, type) holds.

    `edge_types` fixes the edge types of the stream and their order. `stats_from` is (x, edge_index) or (x, edge_index,
    edge_weight), best of the graph that the module was trained on: norms over all vertices (GraphNorm, PairNorm,
    LayerNorm(mode="graph") and the like) keep the statistics they have there, and the model is approximate. `head`
    names a submodule whose output is served beside the embedding as logits: either the module's last layers, or one
    that forward does not use. `features` is the width of the features, for a module none of whose layers says it, such
    as one of hops alone (LGConv, APPNP); the graph of `stats_from` has it as well. A forward that takes several rows of
    a vertex, (text, numbers, edge_index), has the width of each, as {"text": 768, "numbers": 6}: the features are these
    side by side. `output` says which of several results the embedding is, by place or by key: 0 of (mu, logstd).
    `method` names another method than forward that makes it, such as "encode".

    A conv takes what it is handed as edge_attr for attributes of edges where it reads such (GINEConv), else for a
    weight; a forward may have both. stats_from then has them as well, as (x, edge_index, edge_weight or None,
    edge_attr). `edge_features` is how many numbers the attributes of an edge have, as a check: convs say it. Only a
    GENConv by itself whose edge_dim is out_channels does not, and reads them only with it.

    A module of several kinds of vertices takes (x_dict, edge_index_dict[, edge_attr_dict][, edge_weight_dict]), one of
    relations within a kind (x, edge_index, edge_type). `metadata` is (kinds, relations) as data.metadata() has it,
    where HeteroConv or to_hetero does not say it; `stats_from` is a HeteroData; `head` may be one for each kind, as
    {"user": "classifier"}, or a ModuleDict by kind; `features` has the width of each kind, as {"user": 8}, where no
    layer says it; `mirrors` names relations that follow others reversed, as {"rev_buys": "buys"}, by default all rev_X.
    Rows of an Embedding are looked up by the ids that the module is given: as x_dict["user"] of a kind without
    features, or as one more argument, node_id_dict; or all of them are the rows of a kind. The weights of an RGCNConv
    that is called without features, with None or ids, are such rows. `ids` has the id of each row, as
    {"user": [...]}, or as a list for a module of one kind: whole numbers or strings, by default its number. A module
    may take all in one HeteroData, `data`.

    `checks` tries whether layers do what they declare; its answers stand in model.json. Those of freshet.export_model
    are a short form of `freshet layer check`. `overwrite` replaces another model in the folder, which is refused else.

    A module of `freshet.to_torch` is written with the weights that it has now, and takes no other options.

    `link_head` scores pairs of embeddings: a module that is called as head(left, right), with rows (n, width) each, and
    makes one number of each pair, such as a cosine, a torch.nn.Bilinear, or a network on both rows side by side. With
    kinds one for each two of them, as {("user", "item"): head}. Without one, pairs are scored by the dot product.

    Raises: ExportError naming the layer or option that is not supported, the difference when the exported model does
    not reproduce the module on a random graph, or the folder of another model; nothing is written then. ImportError
    without PyTorch Geometric.
    """
    need("torch", "export_model")
    asked = Asked(method, output, edge_features or 0, columns=columns_of(getattr(module, method, None), features))
    features = sum(width for _, width in asked.columns) if asked.columns else features
    more = KindsAsked(metadata, features, mirrors, edge_types, edge_features, stats_from, head, ids)
    try:
        if isinstance(module, DeclaredModule):
            given = more._asdict() | {"output": output, "link_head": link_head}
            _refuse_options(given | {"method": None if method == "forward" else method})
        model = _model_of(module, asked, more, checks)
        if link_head is not None:
            with _ONE_AT_A_TIME:
                model = with_link_heads(model, link_head)
        write_model(model, Path(folder), overwrite=overwrite)
    except ExportError as error:
        refusal = error.in_a_line()
    else:
        return model
    raise refusal  # from here, and without the errors behind it: what is to be done is in its line


def _model_of(module: Any, asked: Asked, more: KindsAsked, checks: Checks | None) -> Model | KindsModel:
    """Return the model that a module is, with the answers of the checks.

    Raises: ExportError.
    """
    if not isinstance(module, torch.nn.Module):
        refuse(f"export_model takes a torch.nn.Module, got {type(module).__name__}")
    model: Model | KindsModel
    with _ONE_AT_A_TIME:
        module = with_learned_sums(with_types_by_name(module, asked.method))
        if isinstance(module, DeclaredModule):
            model = checked_model(module)
        elif any(one is not None for one in (more.metadata, more.mirrors, more.ids)) or reads_kinds(
            module, asked.method
        ):
            model = _kinds_or_plain(module, asked, more, checks)
        else:
            model = _plain_or_columns(module, asked, more, checks)
    return model if checks is None else model.model_copy(update={"checks": checks(model)})


def _kinds_or_plain(module: Module, asked: Asked, more: KindsAsked, checks: Checks | None) -> Model | KindsModel:
    """Return the model with relations that a module is, or without: types are unread then, or columns of attributes.

    Raises: ExportError why it is none of these.
    """
    try:
        with_kinds: KindsModel = _recorded_where_needed(kinds_model, module, asked, more, checks)
    except ExportError as error:
        of_kinds = any(one is not None for one in (more.metadata, more.mirrors, more.ids))
        if of_kinds or types_left(module, asked.method) is None:
            raise
        return _plain_or_columns(module, asked, more, checks, error)
    return with_kinds


def _plain_or_columns(
    module: Module, asked: Asked, more: KindsAsked, checks: Checks | None, first: ExportError | None = None
) -> Model:
    """Return the model that a module without kinds is, whose edges may have types that it looks rows up by."""
    try:
        plain: Model = _recorded_where_needed(_plain_model, module, asked, more, checks)
    except ExportError as error:
        if (types := types_left(module, asked.method)) is None:
            return _with_categories(module, asked, more, checks, error)
        return _with_type_columns(module, types, (asked, more, checks), first or error)
    return plain


def _with_categories(
    module: Module, asked: Asked, more: KindsAsked, checks: Checks | None, error: ExportError
) -> Model:
    """Return the model that a module is whose attributes of edges number categories.

    Raises: ExportError why it is none, or the `error` of how else it was read, where that is not about categories.
    """
    refused = list[ExportError]()
    for one in (ways := ways_of_categories(module, asked.method)):
        way = asked._replace(recorded=True, categories=one)
        with suppress(ExportError):  # what is no forward with attributes is refused for that
            trace(plain_copy(module), more.one_head(), way)
            try:
                return _plain_model(module, way, more, checks)
            except ExportError as other:
                refused += [] if other.about == UNREAD else [other]
    if refused:
        raise refused[0] from error
    looks = ways and ("int64" in str(error) or "Embedding" in str(error))
    raise ExportError(f"{error}. {LOOKED_UP}").of(error.about) if looks else error


def _with_type_columns(
    module: Module, types: str, given: tuple[Asked, KindsAsked, Checks | None], error: ExportError
) -> Model:
    """Return the model that a module is whose parameter `types` takes types of edges: columns of their attributes.

    Raises: ExportError why it is none, or the `error` of how else it was read, where that is not about types.
    """
    asked, more, checks = given
    try:
        columns = type_columns(module, types, more.edge_types)
        asked, more = asked._replace(recorded=True, types=columns), more._replace(edge_types=columns.names)
        return _plain_model(module, asked, more, checks)
    except ExportError as other:
        raise (other if "types" in str(error) else error) from None


def _recorded_where_needed(
    model_of: Callable[..., Any], module: Any, asked: Asked, more: KindsAsked, checks: Checks | None
) -> Any:
    """Return the model that a module is; what stands between its convs is read as it runs, where no layer is that.

    Raises: ExportError saying why it is none, as far as it can be read otherwise.
    """
    refused, recorded = list[ExportError](), asked._replace(recorded=True)
    for way in (asked, recorded, recorded._replace(opened=True)):
        if way.opened and not _may_be_opened(module, asked.method, refused):
            break
        try:
            model = model_of(module, way, more, checks)
            refuse_other_ways(module, opened=way.opened)
            return model
        except ExportError as error:
            refused.append(error)
        if refused[-1].about == OUT_EDGES:
            return _recorded_where_needed(kinds_model, module, asked._replace(both_ways=True), more, checks)
    first = refusal_of(*refused[:2])
    if len(refused) > 2 and str(refused[2]) not in str(first):
        raise ExportError(f"{first}. Looked into: {refused[2]}").of(first.about)
    raise first


def _may_be_opened(module: Any, method: str, refused: Sequence[ExportError]) -> bool:
    """Return whether convs of the user's own are looked into: those that go against edges, or get several sets of them.

    Also where one has a way of its own for a matrix of edges, and the model is another one without that.
    """
    own = [part for part in module.modules() if is_own(part)]
    if not own:
        return False
    causes = list[BaseException | None](refused)
    while any(causes):
        if any(isinstance(one, ExportError) and one.about == INSIDE for one in causes):
            return True
        causes = [one and one.__cause__ for one in causes]
    differs = any(one.about == DIFFERS for one in refused)
    return bool(edge_sets_of(getattr(module, method))) or (differs and any(one.fuse for one in own))


def _refuse_options(given: Mapping[str, Any]) -> None:
    """Refuse options beside a module that is a model already.

    Raises: ExportError naming one that is given.
    """
    if named := sorted(name for name, value in given.items() if value is not None):
        refuse(f"{named[0]}: a module of freshet.to_torch takes no options; what its model says comes along")


def _plain_model(module: Module, asked: Asked, more: KindsAsked, checks: Checks | None) -> Model:
    """Return the model that a module without kinds is, which gives what the module gives."""
    features, edge_features, head = more.one_width(), more.edge_features, more.one_head()
    given = more.stats_from.plain() if isinstance(more.stats_from, StoredGraph) else more.stats_from
    graph = None if given is None else plain_inputs(given)
    if asked.types is not None and graph is not None:
        graph = with_columns_of_types(graph, given, asked.types.many)
    refuse_wrapped(module)
    module = plain_copy(module)
    with naming_weights(module):
        traced = trace(module, head, asked)
    call = ModuleCall(asked.method, traced=traced.run)
    statistics = None if graph is None else gather(module, call, WITHOUT_KINDS, graph)
    split = _split(module, traced.steps, head)
    frozen = None if statistics is None else statistics.take
    width = features if graph is None or features is not None else int(graph.rows[0].shape[1])
    types, edge_width, categories = 0, edge_features, tuple[int, ...]()
    rows = first_width(split[0]) if width is None else width
    if asked.types is not None:
        types, edge_width = asked.types.many, asked.types.width(module, traced, edge_features, rows)
    if asked.categories is not None:
        categories = asked.categories.counts(module, traced, edge_features, rows)
        edge_width = len(categories)
    body, tail = (
        [step._replace(frozen=frozen, edge_width=edge_width, categories=categories) for step in part] for part in split
    )
    with naming_weights(module):
        layers, weights = convert_chain(body, first_width(body) if width is None else width, "layers")
        head_layers, head_weights = convert_chain(tail, None, "head")
    refuse_weights(module, weights | head_weights)
    layers, weights = with_running_sums(layers, weights, "layers")
    of_edges = {"edge_types": list(more.edge_types or []), "type_columns": types > 0, "edge_categories": categories}
    model = _build(layers, head_layers, weights | head_weights, of_edges)
    if width is not None and model.features.width != width:
        refuse(f"features are {width} wide, but the module reads rows of width {model.features.width}")
    if edge_features is not None and model.edge_features - types != edge_features:
        read = model.edge_features - types
        refuse(f"edge_features are {edge_features}, but the module reads attributes of width {read}")
    graphs = plain_graphs(traced, model, head, statistics)
    model = compared(module, model, graphs, checks)
    warn_of_weights(module, graphs)
    if traced.own is not None:
        _check_own(module, model, graphs, traced.own(model.features.edge_width))
    return model


def _check_own(module: Module, model: Model, graphs: Graphs, own: OwnRun) -> None:
    """Compare a module on the Data that it reads without being given it, where nothing stands in its place.

    Raises: ExportError past the tolerance, and for a module that gives something else when it is called again.
    """
    about = f"the graph of {own.name}, which the module reads without being given it"
    theirs = theirs_of(module, replace(graphs.run, call=ModuleCall("forward", traced=own.run)))
    with on_one_thread():
        compared_on(theirs, ours_of(model, graphs), own.graph, about)


def plain_graphs(traced: Traced, model: Model, head: str | None, frozen: Statistics | None = None) -> Graphs:
    """Return random graphs of a module without kinds, with how it is run."""
    is_called = head is not None and any(_is_inside(step, head) for step in traced.steps)
    heads = {} if head is None else {0: KindHead(head, [], is_called)}
    run = Run(ModuleCall("forward", traced=traced.run), WITHOUT_KINDS, FORWARD, heads=heads, frozen=frozen)
    edges = [model.features.edge_width]
    types = len(model.edge_types) if model.type_columns else 0
    categories = model.edge_categories
    return Graphs(
        run, Widths([model.features.width], edges, edges), Parts([0], [0]), types=types, categories=categories
    )


def _build(layers: list[Any], head: list[Any], weights: Weights, of_edges: Mapping[str, Any]) -> Model:
    try:
        edges = max((layer.edge.attributes for layer in layers if isinstance(layer, Conv)), default=0)
        return build_model(layers=layers, head=head, weights=weights, edge_features=edges, **of_edges)
    except (ModelError, ValidationError) as error:
        msg = f"the module's layers make no model: {explain(error)}"
        raise ExportError(msg) from None


def _split(module: Module, steps: list[Step], head: str | None) -> tuple[list[Step], list[Step]]:
    """Cut the steps into those that make the embedding and those of the head."""
    if head is None:
        return steps, []
    part = head_of(module, head)
    inside = [_is_inside(step, head) for step in steps]
    if not any(inside):
        return steps, dense_steps(head, part)
    first = inside.index(True)
    if not all(inside[first:]):
        after = next(step.name for step, within in zip(steps[first:], inside[first:], strict=True) if not within)
        refuse(f"head={head!r} is not the end of the module: {after} comes after it")
    refuse_jumps(head, steps[first:])
    return steps[:first], steps[first:]


def _is_inside(step: Step, head: str) -> bool:
    return step.name == head or step.name.startswith(head + ".")
