"""The parameters of a forward, which kinds it reads, and the part that makes the rows."""

from __future__ import annotations

import dis
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.nn import Aggregation

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.categories import EdgeCategories
from freshet.gnn.pyg.forward.held import HeldData
from freshet.gnn.pyg.forward.sampled import OF_SAMPLES, SIZES_OF_HOPS, SampledLayers, of_sample, put_sizes
from freshet.gnn.pyg.forward.type_columns import TypeColumns
from freshet.gnn.pyg.forward.unread import standing_for
from freshet.gnn.pyg.refusals import KINDS, OF_PAIRS, ROWS_BESIDE, reads_types
from freshet.gnn.pyg.steps import ATTRIBUTE_NAMES, adds_attributes, class_name, edge_width_of, takes_attributes

WEIGHT_NAMES = ("edge_weight", "edge_weights", "edge_attr", "weight", "weights", "w")
EDGE_NAMES = ("edge_index", "edge_indices", "edges", "adj_t", "adj")
ROW_NAMES = ("x", "X", "h", "features", "feature", "feats", "feat", "inputs", "node_features")
DATA_NAMES = ("data", "batch", "graph", "g", "batch_data", "graph_data", "hetero_data")
# Parts of the names of parameters that are no weights of edges, where a forward needs them.
_NO_WEIGHTS = {
    *("index", "label", "batch", "size", "mask", "neg", "pos", "pair", "pairs", "target", "id", "num", "time", "src"),
    *("type", "types", "relation"),
}


class ModuleInputs(NamedTuple):
    """Inputs of a module: rows by kind, and edges, weights and attributes by relation; placeholders or tensors.

    types: of one kind with relations, the type of every edge; `edges` has then one entry. ids: of vertices by kind, by
    which a module looks learned rows up.
    """

    rows: list[Any]
    edges: list[Any]
    weights: list[Any]
    attributes: list[Any]
    types: Any = None
    ids: Sequence[Any] = ()


class Shapes(NamedTuple):
    """Shapes of edge weights and attributes that a forward is given, where not (edges,) and (edges, width).

    column: weights as (edges, 1). flat: attributes of one number as (edges,).
    """

    column: bool = False
    flat: bool = False

    def of(self, edge_weight: Any, edge_attr: Any) -> tuple[Any, Any]:
        """Return both in these shapes."""
        weights = edge_weight.view(-1, 1) if self.column else edge_weight
        return weights, edge_attr.view(-1) if self.flat else edge_attr


STANDARD = Shapes()


class Parameters(NamedTuple):
    """Parameters of a forward for edges, weights and attributes, by name; edges None if they come second, by place.

    rows: the parameters for rows, with their widths, where it is not the first one alone; 0 for all columns. needless:
    parameters that it needs, of which nothing may be read; `needs` begins the refusal. absent: whether these are None.
    """

    edges: str | None = None
    weights: str | None = None
    takes_edges: bool = True
    shapes: Shapes = STANDARD
    by_place: bool = False  # weights come third, into *args
    attributes: str | None = None
    of_sample: tuple[str, ...] = ()  # parameters that describe a sample
    hops: bool = True  # whether that are sizes of hops, or None
    reads_them: bool = False  # the way counts only where a conv is handed the attributes
    data: bool = False  # all come in one Data, under these names
    unread: str | None = None  # a parameter for attributes that keeps its None: no conv that gets it reads any
    layers: SampledLayers | None = None  # in the place of edges
    held: HeldData | None = None  # a Data that it reads without being given it
    rows: tuple[tuple[str, int], ...] = ()
    needless: tuple[str, ...] = ()
    needs: str = ""
    absent: bool = False
    types: TypeColumns | None = None  # the types of edges, which stand in front of their other attributes
    categories: EdgeCategories | None = None  # how attributes are handed over that number categories

    @property
    def weights_of_data(self) -> str:
        """The field of a Data that has weights."""
        return "edge_attr" if self.weights == "edge_attr" else "edge_weight"

    def call(self, function: Callable[..., Any], x: Any, edge_index: Any, edge_weight: Any, edge_attr: Any) -> Any:
        """Call a forward, so that its other parameters keep their defaults."""
        edge_attr = edge_attr if self.categories is None else self.categories.of(edge_attr)
        if self.data or self.held is not None:
            given = {"edge_attr": edge_attr, self.weights_of_data: edge_weight}
            data = Data(x=x if self.data else None, edge_index=edge_index, **given)
            if self.held is None:
                put_sizes(data, x.size(0), data, edge_index.size(1))
                data.graph = _ogb_graph(data, x.size(0))
                return rows_of(function(data), x)
            if self.data:
                return self.held.call(function, data)
            function = partial(self.held.call, function, data)
        sizes = (x.size(0), edge_index.size(1)) if self.of_sample else ()
        if self.layers is not None:
            edge_index = self.layers.of(edge_index, x.size(0))
        if self.by_place:
            return function(x, edge_index, edge_weight)
        options = {} if self.weights is None else {self.weights: edge_weight}
        if self.types is not None:
            options[self.types.parameter], edge_attr = self.types.of(edge_attr)
        if self.attributes is not None:
            options[self.attributes] = edge_attr
        options |= {name: of_sample(name, *sizes) if self.hops else None for name in self.of_sample}
        options |= {name: None if self.absent else standing_for(name, x) for name in self.needless}
        if self.edges is not None:
            options[self.edges] = edge_index
        if self.rows:
            return function(**cut(x, self.rows), **options)
        return function(*(x, edge_index)[: 1 + (self.takes_edges and self.edges is None)], **options)


def rows_of(made: Any, x: Any) -> Any:
    """Return the rows of a result that is the Data that was given, with its x replaced.

    Raises: ExportError where it was not.
    """
    if not isinstance(made, Data):
        return made
    if made.x is x:
        msg = "its forward returns its Data, whose x is as it was given: have it return the rows of vertices"
        raise ExportError(msg)
    return made.x


def ways_of(
    module: Module, name: str, edges: str | None, more: list[inspect.Parameter], *, recorded: bool
) -> list[Parameters]:
    """The ways in which a forward may be called, the likeliest first; `more`: its parameters beside rows and edges.

    `recorded`: whether it may make of attributes what convs read.
    """
    parts = list(module.modules())
    reads, adds = any(map(takes_attributes, parts)), any(map(adds_attributes, parts))
    ways = list[Parameters]()
    found = _attribute_parameter(more) if reads or adds else None
    sampled = tuple(p.name for p in more if p.name in OF_SAMPLES and p.default is p.empty)
    more = [p for p in more if p.name not in sampled]
    for attributes in [found] if reads or found is None else [found, None]:
        weight_name, others = _weight_parameter([p for p in more if p.name != attributes])
        only = not reads and attributes is not None
        how = Parameters(edges, weight_name, attributes=attributes, of_sample=sampled, reads_them=only)
        if others:
            how = how._replace(needless=others, needs=_needs(name, others))
            guessed = (weight_name,) if weight_name not in (None, *WEIGHT_NAMES) else ()
            ways += [how._replace(weights=None, needless=(*guessed, *others))] if guessed else []
        ways.append(how)
        if weight_name is not None:  # edge_attr[:, 0] reads a column
            ways.append(how._replace(shapes=Shapes(column=True)))
        if attributes is not None and all(edge_width_of(part) == 1 for part in parts if takes_attributes(part)):
            ways.append(how._replace(shapes=Shapes(flat=True)))  # as edge_attr.view(-1, 1) reads them
    encoded = None if reads or adds or not recorded else next((p.name for p in more if p.name in ATTRIBUTE_NAMES), None)
    weights = next((p.name for p in more if p.name in WEIGHT_NAMES and p.name != encoded), None)
    if encoded is not None and not [p for p in more if p.default is p.empty and p.name not in (encoded, weights)]:
        ways.insert(0, Parameters(edges, weights, attributes=encoded, of_sample=sampled, reads_them=True))
    if any(name in SIZES_OF_HOPS for name in sampled):  # a module that hands them on takes None
        ways += [how._replace(hops=False) for how in ways]
    named = (*ATTRIBUTE_NAMES, *WEIGHT_NAMES)
    optional = next((p.name for p in more if p.name in named and p.default is None), None)
    if optional is not None and optional == ways[0].weights and not reads:
        ways.append(ways[0]._replace(weights=None, unread=optional))
    return ways


def _ogb_graph(data: Data, vertices: Any) -> dict[str, Any]:
    """Return a Data as OGB's datasets have their `graph`, which projects of heterophily read as `data.graph[...]`."""
    fields = {"node_feat": "x", "edge_index": "edge_index", "edge_feat": "edge_attr", "edge_weight": "edge_weight"}
    return {name: data[field] for name, field in fields.items() if field in data} | {"num_nodes": vertices}


def ways_of_data() -> list[Parameters]:
    """The ways in which a forward may be called with one Data, the likeliest first.

    Its edge_attr are attributes of edges, or else weights; convs that read no attributes refuse the former.
    """
    shapes = (STANDARD, Shapes(flat=True), Shapes(column=True))
    ways = [Parameters(weights="edge_weight", attributes="edge_attr", shapes=one, data=True) for one in shapes]
    return ways + [Parameters(weights="edge_attr", shapes=one, data=True) for one in (STANDARD, Shapes(column=True))]


def takes_data(parameters: Sequence[inspect.Parameter]) -> bool:
    """Return whether a forward takes one Data, and needs nothing else."""
    others = (p for p in parameters[1:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return bool(parameters) and parameters[0].name in DATA_NAMES and all(p.default is not p.empty for p in others)


def takes_nothing(parameters: Sequence[inspect.Parameter]) -> bool:
    """Return whether a forward needs no argument, and has none for edges."""
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return all(p.default is not p.empty and p.name not in EDGE_NAMES for p in named)


def takes_no_edges(parameters: Sequence[inspect.Parameter]) -> bool:
    """Return whether a forward takes rows, and beside them no more than values of edges."""
    values = (*WEIGHT_NAMES, *ATTRIBUTE_NAMES)
    others = [p for p in parameters[1:] if p.name not in values]
    return bool(parameters) and parameters[0].name not in EDGE_NAMES and takes_nothing(others)


def cut(x: Any, rows: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Return the columns of rows that parameters take, by name; all of them for one whose width is 0."""
    found, begin = dict[str, Any](), 0
    for name, width in rows:
        found[name] = x[:, begin : begin + width] if width else x
        begin += width
    return found


def columns_of(function: Any, features: Any) -> tuple[tuple[str, int], ...]:
    """Return the parameters of a forward that `features` names, with their widths; none where it names kinds."""
    if not callable(function) or not isinstance(features, Mapping) or not features:
        return ()
    names = inspect.signature(function).parameters
    of_kinds = any(name.endswith("_dict") for name in names)
    fits = all(name in names and isinstance(width, int) and width > 0 for name, width in features.items())
    return tuple(features.items()) if fits and not of_kinds else ()


def rows_by_name(
    name: str, parameters: list[inspect.Parameter], columns: tuple[tuple[str, int], ...]
) -> tuple[tuple[tuple[str, int], ...], str, list[inspect.Parameter]] | None:
    """The parameters of a forward that take rows, where edges come first or `columns` are given; of edges, and others.

    Raises: ExportError where none takes edges.
    """
    names = [p.name for p in parameters[:2]]
    if not columns and len(names) == 2 and names[0] in EDGE_NAMES and names[1] in ROW_NAMES:
        columns = ((names[1], 0),)
    if not columns:
        return None
    rest = [p for p in parameters if p.name not in dict(columns)]
    edges = next((p for p in rest if p.name in EDGE_NAMES), None)
    if edges is None:
        refuse(f"{name} takes ({', '.join(p.name for p in parameters)}), and beside features none called edge_index")
    return columns, edges.name, [p for p in rest if p is not edges]


def edge_parameter(name: str, parameters: list[inspect.Parameter]) -> tuple[str | None, list[inspect.Parameter]]:
    """The parameter of a forward that takes edges, None where it is the second; and those that are neither it nor rows.

    Raises: ExportError where there is none.
    """
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    named = sorted((p for p in by_name[1:] if p.name in EDGE_NAMES), key=lambda p: EDGE_NAMES.index(p.name))
    second = positional[1] if len(positional) > 1 else None
    if not positional or (not named and (second is None or second.default is not inspect.Parameter.empty)):
        msg = f"{name} takes ({', '.join(p.name for p in parameters)}), expected (x, edge_index[, edge_weight])"
        if not parameters:
            msg += ": what it reads elsewhere would stay as it is"
        elif len(positional) == 1:
            msg += f", or one Data, called {', '.join(DATA_NAMES[:3])} or {DATA_NAMES[3]}"
        raise ExportError(msg)
    edges = named[0] if named else second
    more = [p for p in (*positional[1:], *(p for p in parameters if p.kind is p.KEYWORD_ONLY)) if p is not edges]
    return (None if edges is second else edges.name if edges else None), more


def _attribute_parameter(parameters: list[inspect.Parameter]) -> str | None:
    """The parameter of a forward whose module reads attributes of edges that takes them; None where none does."""
    named = [p.name for p in parameters if p.name in ATTRIBUTE_NAMES]
    required = [p.name for p in parameters if p.default is p.empty and p.name not in WEIGHT_NAMES]
    return next(iter([*named, *required[:1]]), None)


def _weight_parameter(parameters: list[inspect.Parameter]) -> tuple[str | None, tuple[str, ...]]:
    """The parameter of a forward that takes edge weights, among those past edge_index; and the others that it needs."""
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    named = sorted((p.name for p in parameters if p.name in WEIGHT_NAMES), key=WEIGHT_NAMES.index)
    named += [p.name for p in parameters[:1] if p.name in required and not is_no_weight(p.name)]
    weight_name = next(iter(named), None)
    return weight_name, tuple(one for one in required if one != weight_name)


def _needs(name: str, others: Sequence[str]) -> str:
    """Say that a forward needs parameters that it cannot be given, and what to do."""
    msg = f"{name} needs {', '.join(others)}, expected (x, edge_index[, edge_weight]): "
    if pairs := [one for one in others if "label" in one.split("_")]:
        return msg + f"{pairs[0]} are pairs, and Freshet keeps a row per vertex. {OF_PAIRS}"
    msg += "give it a default"
    msg += ", batch=None, and leave out what makes a row for each graph" if "batch" in others else ROWS_BESIDE
    if unread := [one for one in others if one in ATTRIBUTE_NAMES]:
        msg += f". No conv in it reads {unread[0]} as attributes of edges (GATConv does with edge_dim)"
    return msg


def is_no_weight(name: str) -> bool:
    """Return whether a parameter, by its name, takes no weights of edges."""
    return any(part in name.lower().split("_") for part in _NO_WEIGHTS)


_TO_HETERO = "torch_geometric.nn.to_hetero"
_OF_DICTS = ("items", "keys", "values", "get")
_BY_DICTS = {f"torch_geometric.nn.{name}" for name in ("HeteroConv", "HeteroDictLinear", "HGTConv", "HANConv")}


def outside_aggregations(module: Module) -> Iterator[tuple[str, Module]]:
    """Yield the parts of a module by their paths, without those that aggregations of messages are made of."""
    inside = set[int]()
    for path, part in module.named_modules():
        if id(part) not in inside:
            yield path, part
        if isinstance(part, Aggregation):
            inside.update(id(one) for one in part.modules())


def why_kinds(module: Module) -> str | None:
    """Return why a module is refused that holds one which reads the types of edges; None for any other."""
    for path, part in outside_aggregations(module):
        if reads_types(class_name(part)):
            return f"{path or type(module).__name__}: {class_name(part)} {KINDS}"
    return None


def is_of_kinds(part: Module) -> bool:
    """Return whether a module is called with dicts by kind: one of PyG's, or what to_hetero has made."""
    if class_name(part) in _BY_DICTS:
        return True
    homes = _homes_of_calls(part) if isinstance(part, torch.fx.GraphModule) else ()
    return any(home.startswith(_TO_HETERO) for home in homes)


def made_with_bases(module: Module) -> str | None:
    """Return why what to_hetero_with_bases has made is refused; None for any other module."""
    for part in module.modules():
        homes = _homes_of_calls(part) if isinstance(part, torch.fx.GraphModule) else ()
        if any(home.startswith(f"{_TO_HETERO}_with_bases") for home in homes):
            return (
                f"{type(part).__name__} is made by to_hetero_with_bases, which is not supported: hooks mix its "
                "messages. Nearest: to_hetero"
            )
    return None


def _homes_of_calls(part: Any) -> list[str]:
    """The modules that the functions come from which a graph calls."""
    return [str(getattr(node.target, "__module__", "")) for node in part.graph.nodes]


def reads_dicts(nodes: Sequence[Any]) -> str | None:
    """Return why a traced forward is refused that reads its inputs by kind, as `x["user"]` and `x.items()` do."""
    for node in nodes:
        if node.op == "placeholder" or not node.args or getattr(node.args[0], "op", "") != "placeholder":
            continue
        key = node.args[1] if node.target is operator.getitem else None
        by_name = isinstance(key, str) or (isinstance(key, tuple) and all(isinstance(one, str) for one in key))
        if by_name or (node.op == "call_method" and node.target in _OF_DICTS):
            return f"reads its input as a dict ({node.meta.get('line', '')}): it {KINDS}"
    return None


def is_rest(parameters: Sequence[inspect.Parameter]) -> bool:
    """Return whether *args is all that a forward has, beside **kwargs: it is called as forward(x, edge_index)."""
    kinds = {p.kind for p in parameters}
    return (
        inspect.Parameter.VAR_POSITIONAL in kinds <= {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    )


def read_rest(function: Any, parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return which of *args and **kwargs a function has and reads; one that passes them by needs none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    rest = [one for one in parameters if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if code is None:
        return rest
    read = {one.argval for one in dis.get_instructions(code) if one.opname.startswith("LOAD_")}
    return [one for one in rest if one.name in read]
