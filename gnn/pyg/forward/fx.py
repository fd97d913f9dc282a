"""Traces a forward by torch.fx."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.errors import OUT_EDGES, refuse
from freshet.gnn.pyg.forward.asked import FORWARD, Asked
from freshet.gnn.pyg.forward.encoding import EncodingReader
from freshet.gnn.pyg.forward.held import HeldData, field_read
from freshet.gnn.pyg.forward.hints import encoder_hint
from freshet.gnn.pyg.forward.in_place import refuse_overwritten
from freshet.gnn.pyg.forward.line import INPUT, Operations
from freshet.gnn.pyg.forward.opening import opened
from freshet.gnn.pyg.forward.parameters import (
    WEIGHT_NAMES,
    ModuleInputs,
    Parameters,
    is_no_weight,
    is_rest,
    read_rest,
    reads_dicts,
    why_kinds,
)
from freshet.gnn.pyg.forward.places import name_of
from freshet.gnn.pyg.forward.sampled import LAYER_NAMES, SampledLayers, ends_the_list
from freshet.gnn.pyg.forward.samples import Samples
from freshet.gnn.pyg.forward.several import call_by_part
from freshet.gnn.pyg.forward.tracer import TracedRoot, Tracer
from freshet.gnn.pyg.forward.unread import drop_unread, is_alike
from freshet.gnn.pyg.forward.ways import ways_to_call
from freshet.gnn.pyg.functions import function_step
from freshet.gnn.pyg.refusals import TAKEN, why_not_part
from freshet.gnn.pyg.steps import ATTRIBUTE_NAMES, ExportError, OwnRun, Step, Traced, refuse_weights
from freshet.gnn.rows.jumps import Join, Keep


def trace_forward(module: Module, head: str | None, asked: Asked) -> Traced:
    """Trace forward(x, edge_index[, edge_weight]), or another method, with torch.fx.

    Raises: ExportError at the first operation that cannot be taken over, with its line.
    """
    try:
        return _trace_forward(module, head, asked)
    except ExportError as error:
        path, reason = why_not_part(module) or ("", "")
        if reason and not path:
            raise ExportError(reason) from error
        besides = f"Besides, {path}: {reason}" if reason and reason.split(": ")[-1] not in str(error) else ""
        found = [one for one in (besides, encoder_hint(module, str(error), asked.method)) if one]
        if not found:
            raise
        msg = ". ".join([str(error), *found])
        raise ExportError(msg).of(OUT_EDGES if error.about == OUT_EDGES else "") from error


def _trace_forward(module: Module, head: str | None, asked: Asked) -> Traced:
    parameters = list(inspect.signature(getattr(module, asked.method)).parameters.values())
    name = f"{type(module).__name__}.{asked.method}"
    if reason := why_kinds(module):
        raise ExportError(reason)
    ways, more = ways_to_call(module, name, parameters, asked)
    try:
        ops, result, how = _traced_one_way(module, ways, head, asked)
    except ExportError:
        edges = _edges_of(ways[0], parameters)
        if edges not in LAYER_NAMES:
            raise
        ops, result, how = _by_layers(module, ways[0], edges, head, asked)
    if how.held is not None and how.held.beside is not None:
        read = ", ".join(how.held.read.values())
        warnings.warn(f"{name} reads {read} beside its arguments; in a job both are of its graph", stacklevel=2)
    if how.weights is None:
        _refuse_unnamed_weights(module, head, asked, how, [p.name for p in more if p.name != how.attributes])
        if rest := read_rest(getattr(module, asked.method), parameters):
            how, ops, result = _by_rest(module, head, asked, how, rest) or (how, ops, result)

    def run(copy: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor) -> Any:
        given = how.shapes.of(edge_weight, edge_attr)
        return asked.of(copy, how.call(getattr(copy, asked.method), x, edge_index, *given))

    own = None if how.held is None else partial(_own_run, module, how, how.held, asked)
    types = how.types.many if how.types is not None and how.attributes is None else 0
    return Traced(list(ops.steps(result)), run, own, types)


def _own_run(module: Module, how: Parameters, held: HeldData, asked: Asked, width: int) -> OwnRun:
    """Return the run on the Data that a forward reads without being given it."""
    own = held.itself(module)

    def run(copy: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor) -> Any:
        given = how.shapes.of(edge_weight, edge_attr)
        return asked.of(copy, how._replace(held=own).call(getattr(copy, asked.method), x, edge_index, *given))

    return OwnRun(own.name, own.graph(width, how.weights_of_data), run)


def _traced_one_way(
    module: Module, ways: Sequence[Parameters], head: str | None, asked: Asked
) -> tuple[Operations, str, Parameters]:
    """The operations of a forward that is called in the first of these ways that it takes, and their result.

    Raises: ExportError why it does not take the first one, where it takes none.
    """
    refused: list[ExportError] = []
    for how in ways:
        ops = Operations()
        try:
            result = _traced(ops, "", module, [INPUT], how, head=head, asked=asked)
        except ExportError as error:
            refused.append(error)
            continue
        if how.unread is not None and not _is_unread(module, how, head, asked):
            continue
        if not how.reads_them or any(step.attributes for step in ops.steps(result)):
            return ops, result, how
    raise _likeliest(refused, ways, getattr(module, asked.method))


def _edges_of(how: Parameters, parameters: Sequence[inspect.Parameter]) -> str:
    """The name of the parameter that takes edges; empty where none does."""
    if not how.takes_edges or how.data:
        return ""
    return how.edges or parameters[1].name


def _by_layers(
    module: Module, how: Parameters, edges: str, head: str | None, asked: Asked
) -> tuple[Operations, str, Parameters]:
    """The operations of a forward that takes a list of sampled layers: as many as it can read, of which it reads all.

    Raises: ExportError where it takes none, or any number of layers, or where what it does with one more is not taken.
    """
    most = sum(isinstance(part, MessagePassing) for part in module.modules())
    first: ExportError | None = None
    for pairs in (False, True):
        found, past, counted = None, None, 0
        for count in range(1, most + 2):
            ops, layers = Operations(), SampledLayers(count, pairs=pairs)
            try:
                result = _traced(ops, "", module, [INPUT], how._replace(layers=layers), head=head, asked=asked)
            except ExportError as error:
                first, past = first or error, past if ends_the_list(error) else error
                continue
            if layers.are_read:
                found, past, counted = (ops, result, how._replace(layers=layers)), None, count
        if found is not None and past is not None:
            raise past
        if found is not None and counted > most:
            name = f"{type(module).__name__}.{asked.method}"
            refuse(f"{name} takes as many layers in {edges} as it is given: have a conv for each, as self.convs[i]")
        if found is not None:
            return found
    raise first or ExportError(f"{type(module).__name__}.{asked.method} reads no layer of {edges}")


def _likeliest(refused: Sequence[ExportError], ways: Sequence[Parameters], function: Any) -> ExportError:
    """Return why a forward is not taken that was called in these ways."""
    for error, how in zip(refused, ways, strict=False):
        if how.held is not None and how.held.read:
            return error
    if ways[0].held is not None and (read := field_read(function)):
        return ExportError(f"{refused[0]}. {read} is read, and is no field of a Data of torch_geometric")
    return refused[0]


def _refuse_unnamed_weights(module: Module, head: str | None, asked: Asked, how: Parameters, names: list[str]) -> None:
    """Refuse a parameter that is handed to convs as edge weights, but is not called so: weights would be ignored.

    Raises: ExportError naming it.
    """
    for name in (one for one in names if "weight" in one or not is_no_weight(one)):
        ops = Operations()
        try:
            result = _traced(ops, "", module, [INPUT], how._replace(weights=name), head=head, asked=asked)
        except ExportError:  # what it is otherwise, it keeps its default
            continue
        for step in ops.steps(result):
            if step.edge_weights:
                kind = type(module).__name__
                refuse(f"{kind}.{asked.method} hands {name} to {step.name} as weights of edges: call it edge_weight")


def _by_rest(
    module: Module, head: str | None, asked: Asked, how: Parameters, rest: list[inspect.Parameter]
) -> tuple[Parameters, Operations, str] | None:
    """Trace a forward that may take weights by *args or **kwargs; None where all that it has is *args, without these.

    Raises: ExportError where no conv gets them.
    """
    tried = [how._replace(weights=name) for name in WEIGHT_NAMES if rest[-1].kind is inspect.Parameter.VAR_KEYWORD]
    if rest[0].kind is inspect.Parameter.VAR_POSITIONAL and how.edges is None:
        tried.append(how._replace(by_place=True))
    for one in tried:
        ops = Operations()
        try:
            result = _traced(ops, "", module, [INPUT], one, head=head, asked=asked)
        except ExportError:
            continue
        if any(step.edge_weights for step in ops.steps(result)):
            return one, ops, result
    if is_rest(list(inspect.signature(getattr(module, asked.method)).parameters.values())):
        return None
    shown = ", ".join(("*" if one.kind is inspect.Parameter.VAR_POSITIONAL else "**") + one.name for one in rest)
    refuse(
        f"{type(module).__name__}.{asked.method} reads {shown}, which may hold weights of edges or what is not looked "
        "into: name its parameters, as in forward(self, x, edge_index, edge_weight=None)"
    )


def _traced(
    ops: Operations,
    name: str,
    module: Module,
    rows: Sequence[str],
    how: Parameters,
    *,
    head: str | None = None,
    asked: Asked = FORWARD,
) -> str:
    """Note the operations of a module's forward, which gets the rows and what `how` says; returns its rows' name."""

    def opens(label: str) -> Any:
        return _dense if label == head else None

    graph, given, root = _graph(name, module, how, head, asked)
    results = _read(ops, graph, given, root, name, rows, opens, how=how, asked=asked)
    if len(results) != 1:
        refuse(f"{name} returns the rows of {len(results)} layers, expected one. {TAKEN}")
    if how.needless:
        _refuse_without(module, how, head, asked)
    return results[0]


def _refuse_without(module: Module, how: Parameters, head: str | None, asked: Asked) -> None:
    """Refuse a forward that makes other rows where parameters that nothing reads are None; one may fail so.

    Raises: ExportError naming them.
    """
    graphs = list[Any]()
    for one in (how, how._replace(absent=True)):
        try:
            graph, _, root = _graph("", module, one, head, asked)
            _pruned(graph, root.inner, asked)
        except Exception:  # whatever it is, nobody calls it so
            return
        drop_unread(graph, how.needless, how.needs)
        graphs.append(graph)
    if not is_alike(*graphs):
        refuse(f"{how.needs}. What it makes depends on whether {' or '.join(how.needless)} is None")


def _graph(
    name: str, module: Module, how: Parameters, head: str | None, asked: Asked
) -> tuple[Any, ModuleInputs, TracedRoot]:
    """Return the graph of torch.fx of a forward, its inputs' nodes, and the module that it is of."""

    def call(inner: Any, given: ModuleInputs) -> Any:
        return how.call(inner, *(one[0] for one in given[:4]))

    root = TracedRoot(module, call)
    if asked.method != "forward":
        root.inner.forward = getattr(root.inner, asked.method)
    graph, given = Tracer(root.inner, head, how.shapes, edge_functions=asked.recorded, opened=asked.opened).graph_of(
        root, name or type(module).__name__
    )
    root.inner = module
    return graph, given, root


def _leaves_out(name: str | None, conv: Module, call: Any, given: Any) -> bool:
    """Return whether a conv can do nothing with what it is handed: attributes without edge_dim, weights as its size."""
    if name in ATTRIBUTE_NAMES:
        return getattr(conv, "edge_dim", "") is None
    taken = inspect.signature(conv.forward).bind(*call.args, **call.kwargs).arguments
    return type(conv).__module__.startswith("torch_geometric.") and taken.get("size") is given


def _is_unread(module: Module, how: Parameters, head: str | None, asked: Asked) -> bool:
    """Return whether a parameter for attributes is handed to convs alone that were made without any."""
    graph, inputs, root = _graph("", module, how._replace(weights=how.unread), head, asked)
    (given,) = inputs.weights
    calls = [(root.get_submodule(one.target), one) for one in given.users if one.op == "call_module"]
    if len(calls) < len(given.users) or not all(_leaves_out(how.unread, conv, one, given) for conv, one in calls):
        return False
    for one in list(given.users):
        one.replace_input_with(given, None)
    return "_tensor_constant" not in str(graph) and str(graph) == str(_graph("", module, how, head, asked)[0])


def _read(
    ops: Operations,
    graph: Any,
    given: ModuleInputs,
    root: Any,
    name: str,
    rows: Sequence[str],
    opens: Callable[[str], Any],
    *,
    how: Parameters,
    asked: Asked,
) -> list[str]:
    """Note the operations of a graph; returns the names of the rows that it gives."""
    nodes = list(graph.nodes)
    if reason := reads_dicts(nodes):
        refuse(f"{name or 'the module'} {reason}")
    refuse_overwritten(graph, root, name)
    if asked.output is None and isinstance(nodes[-1].args[0], tuple | list | dict) and len(rows) == 1 and not name:
        raise ExportError(_several(getattr(root, "inner", root), asked, nodes[-1].args[0]))
    _pruned(graph, getattr(root, "inner", root), asked)
    call_by_part(graph, root)
    drop_unread(graph, how.needless, how.needs)
    samples = Samples(given, how.shapes)
    return EncodingReader(ops, graph, given, root, name, rows, opens, samples, asked=asked).results()


def _pruned(graph: Any, module: Module, asked: Asked) -> None:
    """Have a graph give the result that is asked for, and erase operations that this does not read."""
    nodes = list(graph.nodes)
    if asked.output is not None:
        nodes[-1].args = (asked.of(module, nodes[-1].args[0]),)
    for node in reversed(nodes):
        if not node.users and node.op not in ("output", "placeholder"):
            graph.erase_node(node)


def _several(module: Module, asked: Asked, results: Any) -> str:
    """Say that a forward returns several things, and how one of them is asked for."""
    named = list(results.items()) if isinstance(results, dict) else list(enumerate(results))
    what = ", ".join(
        f"output={key!r} ({name_of(value, '') if hasattr(value, 'meta') else value})" for key, value in named
    )
    return (
        f"{type(module).__name__}.{asked.method} returns something other than the rows of a layer: several things. Say "
        f"which one is the embedding, as in export_model(module, folder, output=...): {what}"
    )


def traced_function(ops: Operations, name: str, function: Any, rows: Sequence[str]) -> list[str]:
    """Note the operations of a function of these rows; returns the names of the rows that it gives, one or a list.

    Raises: ExportError at the first operation that cannot be taken over.
    """
    names = ["x"] if len(rows) == 1 else [f"x_{i}" for i in range(len(rows))]
    root = TracedRoot(None, lambda _, given: function(*given.rows))
    tracer = Tracer(None, names=ModuleInputs(names, ["edge_index"], ["edge_weight"], ["edge_attr"]))
    graph, given = tracer.graph_of(root, name)
    return _read(ops, graph, given, root, name, rows, lambda label: None, how=Parameters(), asked=FORWARD)


def called(
    ops: Operations, name: str, op: Any, rows: str, *, weighted: bool, attributed: bool, head: str | None
) -> str:
    """Note a module or function that is called with these rows, and with edges; returns the name of its rows."""
    if not isinstance(op, Module):
        return ops.add(rows, function_step(name, op))
    if weighted:
        refuse_weights(name, op)
    if name == head:
        return _dense(ops, name, op, rows)
    return opened(ops, name, op, rows, edge_weights=weighted, attributes=attributed)


def dense_steps(name: str, module: Module) -> list[Step]:
    """Return the steps of a module that reads rows alone, e.g. a head or a conv's nn.

    Raises: ExportError where a layer reads rows of another than the one before.
    """
    ops = Operations()
    steps = list(ops.steps(_dense(ops, name, module, INPUT)))
    refuse_jumps(name, steps)
    return steps


def refuse_jumps(name: str, steps: list[Step]) -> None:
    """Refuse rows that are kept, in a head or in a conv's nn.

    Raises: ExportError
    """
    for step in steps:
        if isinstance(step.op, Keep | Join):
            refuse(f"{name}: {step.name} is read past the layer behind it; a head and a conv's nn are straight lines")


def _dense(ops: Operations, name: str, module: Module, rows: str) -> str:
    """Note the operations of a module that reads rows alone; those of one's own classes are traced."""

    def other(inner: str, part: Module, rows: str) -> str:
        return _traced(ops, inner, part, [rows], Parameters(takes_edges=False))

    return opened(ops, name, module, rows, edge_weights=False, other=other)
