"""Tracing of a module by torch.fx."""

from __future__ import annotations

import builtins
import inspect
import operator
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NoReturn

import torch
from torch.nn import Module
from torch_geometric.data import storage
from torch_geometric.nn import LINKX, DeepGraphInfomax, DirGNNConv, GroupAddRev, MessagePassing, Sequential

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.compared_widths import compared_widths
from freshet.gnn.pyg.forward.dims import known_dims
from freshet.gnn.pyg.forward.edge_counts import COUNTS, compared_counts
from freshet.gnn.pyg.forward.edge_functions import as_operations
from freshet.gnn.pyg.forward.matrices import EdgeMatrix, matrices_of_edges, with_edges
from freshet.gnn.pyg.forward.parameters import STANDARD, ModuleInputs, Shapes, reads_dicts
from freshet.gnn.pyg.forward.places import blamed, is_library, place_here, where
from freshet.gnn.pyg.forward.propagated import is_own, open_convs
from freshet.gnn.pyg.forward.sizes import RecordedSize, Refusing
from freshet.gnn.pyg.forward.unread import is_alike
from freshet.gnn.pyg.forward.untouched import is_plain
from freshet.gnn.pyg.refusals import EDGE_FUNCTIONS, TAKEN
from freshet.gnn.pyg.running import changed_numbers, copy_of, keeping, kept_numbers, new_numbers
from freshet.gnn.pyg.steps import is_against, written_class


def _in_place(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a method of `RowsProxy` for an operator in place, which torch.fx takes for the one that makes a tensor."""
    return lambda rows, other: rows.tracer.create_proxy("call_function", function, (rows, other), {})


class RowsProxy(torch.fx.Proxy):
    """Placeholder of a tensor."""

    _is_param = _is_buffer = False  # what torch asks of a tensor to see whether it is one of a module's
    layout, is_sparse, is_sparse_csr = torch.strided, False, False
    __iadd__, __isub__ = _in_place(operator.iadd), _in_place(operator.isub)
    __imul__, __itruediv__ = _in_place(operator.imul), _in_place(operator.itruediv)
    __ipow__, __ifloordiv__, __imod__ = map(_in_place, (operator.ipow, operator.ifloordiv, operator.imod))

    def __mul__(self, other: Any) -> Any:
        """Note a product; that with a matrix of edges is the matrix's."""
        return NotImplemented if isinstance(other, EdgeMatrix) else super().__mul__(other)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Note that numbers are written over; refused where functions of edges are looked into."""
        if not self.tracer.has_edge_functions:
            msg = f"'{type(self).__name__}' object does not support item assignment"
            raise TypeError(msg)
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse what puts other values in the place of a tensor's, which torch.fx would not see."""
        if hasattr(torch.Tensor, name) and name not in ("requires_grad", "grad"):
            msg = f"{place_here()} sets .{name} of rows, and Freshet takes values, not memory: "
            raise ExportError(msg + "assign a new tensor to a name")
        super().__setattr__(name, value)

    def dim(self) -> Any:
        """Return the number of dimensions: that of an input is known, and others where operations say it for sure.

        PyG's own functions of edges ask for it before they are refused by name.
        """
        known = self.node.meta.get("dim")
        if known is None and (self.tracer.has_edge_functions or not is_library(sys._getframe(1))):
            known = known_dims(self.node, self.tracer.root)
        return known or self.tracer.create_proxy("call_method", "dim", (self,), {})

    ndim = property(dim)

    @property
    def data(self) -> RowsProxy:
        """The same values: a forward is read without gradients."""
        return self

    @property
    def dtype(self) -> Any:
        """The type of its numbers, which that of edges is known by."""
        return self.node.meta.get("dtype") or self.tracer.create_proxy("call_function", getattr, (self, "dtype"), {})

    def __hash__(self) -> int:
        """Refuse to be looked up by code of a conv that is looked into: what is there may be another for each graph."""
        if self.tracer.is_looking and not is_library(sys._getframe(1)):
            self.tracer.refuse_once(ExportError(f"{place_here()} looks something up by numbers of the graph"))
        return id(self)

    def __len__(self) -> int:
        """Return the length of a parameter or buffer; that of rows is a number of vertices, which torch.fx refuses."""
        root = self.tracer.root
        for name, one in (*root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False)):
            if self.node.op == "get_attr" and name == self.node.target:
                return len(one)
        return int(super().__len__())


@contextmanager
def rows_as_tensors() -> Iterator[None]:
    """Have `RowsProxy` pass for tensors where Python asks by isinstance, as the tensors of a job will.

    There alone: torch's own code reads the memory of what it takes for a tensor (so no `__class__` may say it).
    """
    true_isinstance, a_tensor = isinstance, torch.empty(0)

    def passes(one: Any, kinds: Any) -> bool:
        return true_isinstance(one, kinds) or (type(one) is RowsProxy and true_isinstance(a_tensor, kinds))

    true_len, true_factories = builtins.len, {name: getattr(torch, name) for name in _OF_SIZES}
    builtins.isinstance, builtins.len = passes, lambda one: _length(one, true_len)
    for name, factory in true_factories.items():
        setattr(torch, name, partial(_of_sizes, factory))
    try:
        yield
    finally:
        builtins.isinstance, builtins.len = true_isinstance, true_len
        for name, factory in true_factories.items():
            setattr(torch, name, factory)


_OF_SIZES = ("zeros", "ones", "empty")


def _of_sizes(factory: Callable[..., Any], *sizes: Any, **options: Any) -> Any:
    """Call torch.zeros or the like with sizes one by one, of which torch.fx takes no first one that it records."""
    given = (sizes,) if sizes and type(sizes[0]) is RowsProxy else sizes
    return factory(*given, **options)


def _length(one: Any, true_len: Callable[[Any], int]) -> Any:
    """Return the length of rows as a size that is recorded; of a parameter and of anything else as a number."""
    return one.size(0) if type(one) is RowsProxy and one.node.op != "get_attr" else true_len(one)


def traced(module: Module | None, trace: Callable[[], Any]) -> Any:
    """Return what `trace` makes of a module, in which nothing depends on a number that its calls change.

    Raises: ExportError naming the line of what does.
    """
    before = {} if module is None else kept_numbers(module)
    made = trace()
    if module is None:
        return made
    counts = changed_numbers(before, module)
    if new_numbers(before, module):
        before = kept_numbers(module)
        with suppress(Exception):  # of what the first call kept; what it made is held against the module later
            trace()
        counts |= changed_numbers(before, module)
    if not counts or _settles(module, trace, made):
        return made
    refusing = Refusing(counts)
    named = {name: RecordedSize(lambda sizes, name=name: sizes[name], name, refusing) for name in counts}  # type: ignore[misc]
    with keeping(module, named):
        return trace()


def _settles(module: Module, trace: Callable[[], Any], made: Any) -> bool:
    """Return whether one more call makes the same operations and leaves all numbers as the last one left them.

    So does every further call then, as where a first call alone prints something.
    """
    before = kept_numbers(module)
    try:
        again = trace()
    except Exception:  # whatever it is, the next call says more
        return False
    return not changed_numbers(before, module) and is_alike(made[0], again[0])


class TracedRoot(Module):
    """Calls a module with its inputs."""

    def __init__(self, module: Module | None, call: Callable[[Any, ModuleInputs], Any]) -> None:
        """Take a module, of which a copy is called, and how; None for a function."""
        super().__init__()
        if module is not None:
            self.inner = copy_of(module)  # a forward may keep what it is given
        self._call = call

    def forward(self, given: ModuleInputs) -> Any:
        """Return the result of the call."""
        return self._call(getattr(self, "inner", None), given)


def _reversible(module: Any, x: Any, edge_index: Any, *more: Any) -> Any:
    """Return what GroupAddRev makes of rows: each group of channels is added to what a conv makes of the one before."""
    parts = torch.chunk(x, module.num_groups, dim=module.split_dim)
    groups = [parts[i] for i in range(module.num_groups)]
    last, made = sum(groups[1:]), []
    for group, conv in zip(groups, module.convs, strict=True):
        last = group + conv(last, edge_index, *more)
        made.append(last)
    return torch.cat(made, dim=module.split_dim)


def _embedded(module: Any, *args: Any, **options: Any) -> tuple[Any, None, None]:
    """Return what DeepGraphInfomax gives, with None in place of corrupted rows and of the summary of the graph."""
    return module.encoder(*args, **options), None, None


_OPENED = (DeepGraphInfomax, DirGNNConv, GroupAddRev, LINKX)
_NAMES = ModuleInputs(["x"], ["edge_index"], ["edge_weight"], ["edge_attr"])


class Tracer(torch.fx.Tracer):
    """Traces one module, and takes layers as they are, the one called `head` among them."""

    def __init__(
        self,
        module: Module | None,
        head: str | None = None,
        shapes: Shapes = STANDARD,
        names: ModuleInputs = _NAMES,
        *,
        edge_functions: bool = False,
        opened: bool = False,
    ) -> None:
        """Set the module to trace, None for a function; and the shapes and names of its inputs.

        `edge_functions`: whether PyG's functions of edges are operations, too. `opened`: whether convs of the user's
        own are looked into.
        """
        super().__init__()
        self.has_edge_functions, self.is_looking = edge_functions, opened
        self._refused: ExportError | None = None  # which code that is looked into may have caught
        self._module, self._head, self._shapes, self._names = module, head, shapes, names
        self.given: ModuleInputs

    @property
    def _turns(self) -> bool:
        """Return whether a relation may follow the edges the other way round."""
        return True

    def graph_of(self, root: TracedRoot, name: str) -> tuple[Any, ModuleInputs]:
        """Return the graph of torch.fx of a call of the module, and the nodes of its inputs.

        Raises: ExportError naming what cannot be traced, and where.
        """
        if self.is_looking:
            open_convs(root)
        try:
            functions = as_operations(root) if self.has_edge_functions else nullcontext()
            with rows_as_tensors(), functions, matrices_of_edges(root):
                graph, self.given = traced(self._module, lambda: (self.trace(root), self.given))
            if self._refused is not None:
                raise self._refused
        except ExportError:
            raise
        except Exception as error:
            raise ExportError(self._why_untraced(name, error)) from error
        *listed, types, ids = self.given
        rows, edges, weights, attributes = ([one.node for one in of] for of in listed)
        types = None if types is None else types.node
        return graph, ModuleInputs(rows, edges, weights, attributes, types, [one.node for one in ids])

    def _why_untraced(self, name: str, error: Exception) -> str:
        place, inside = blamed(error)
        at, nodes = f" at {place}" if place else "", list(self.graph.nodes)
        if why := self._why(at, error, nodes):
            return f"{name} {why}"
        inside = inside or next((one.meta["inside"] for one in reversed(nodes) if one.meta.get("inside")), "")
        if inside:
            return f"{name}: {inside} ({place}) {EDGE_FUNCTIONS[inside]}"
        return f"{name} cannot be traced{at} ({type(error).__name__}: {error}). {TAKEN}"

    def _why(self, at: str, error: Exception, nodes: list[Any]) -> str | None:
        """Return why a module cannot be traced, where that is known."""
        if traceback.extract_tb(error.__traceback__)[-1].filename == storage.__file__:
            field = (error.__context__ or error).args[0]
            return f"reads data.{field}{at}: a Data has x, edge_index, edge_weight and edge_attr here"
        if "'NoneType'" in str(error):
            msg = f"computes with None{at} ({error}), as an argument or field of a Data is that it is not given: these "
            return (
                msg + "are x, edge_index, edge_weight and edge_attr. Nearest: others, as positions, among the features"
            )
        return reads_dicts(nodes)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        """Make a placeholder for each input."""
        *names, types, ids = self._names
        dims = (2, 2, 1 + self._shapes.column, 2 - self._shapes.flat)
        rows, edges, weights, attributes = (
            [self._placeholder(name, dim) for name in of] for of, dim in zip(names, dims, strict=True)
        )
        for one in edges:
            one.node.meta["dtype"] = torch.int64
        for dim, of in ((1, edges), (0, weights), (0, attributes)):
            for relation, one in enumerate(of):
                one.node.meta[COUNTS] = dim, relation
        typed = None if types is None else self._placeholder(types, 1)
        self.given = ModuleInputs(rows, edges, weights, attributes, typed, [self._placeholder(name, 1) for name in ids])
        return root_fn, [self.root, self.given]

    def _placeholder(self, name: str, dim: int) -> Any:
        made = self.create_proxy("placeholder", name, (), {})
        made.node.meta["dim"] = dim
        return made

    def proxy(self, node: Any) -> Any:
        """Return the placeholder for the result of an operation."""
        return RowsProxy(node, self)

    def to_bool(self, obj: Any) -> bool:
        """Return the outcome of a branch on numbers of edges that are the same, or on widths; others are refused."""
        known = compared_counts(obj.node)
        if known is None:
            known = compared_widths(obj.node, self.root)
        if known is not None:
            return known
        if self.is_looking:
            self.refuse_once(ExportError(f"{place_here()} branches on numbers of the graph"))
        return bool(super().to_bool(obj))

    def refuse_once(self, error: ExportError) -> NoReturn:
        """Refuse what is traced, also where its code catches that.

        Raises: ExportError, always.
        """
        self._refused = self._refused or error
        raise self._refused

    def create_arg(self, a: Any) -> Any:
        """Return an argument as the graph has it.

        Raises: ExportError for a number that changes from call to call.
        """
        if type(a) is RecordedSize:
            a.refuse()
        return a.node if type(a) is RowsProxy else super().create_arg(a)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Return whether a module is one operation; True for a user's own conv, which is then refused by name."""
        if m is self._module:
            return False
        if self._head is not None and module_qualified_name == f"inner.{self._head}":
            return True
        if type(m) in _OPENED or is_plain(m, Sequential):  # which call others
            return False
        if self._opens(m):
            return False
        if isinstance(m, MessagePassing) or type(m).__module__.startswith("torch_geometric.") or written_class(m):
            return True
        return super().is_leaf_module(m, module_qualified_name)

    def _opens(self, m: Module) -> bool:
        return self.is_looking and is_own(m)

    def call_module(self, m: Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Note a call; GroupAddRev by what it computes, since its forward saves memory in a way that is not traced.

        Of DeepGraphInfomax its embeddings alone: the rest is of corrupted rows, which training has.
        """
        if isinstance(m, MessagePassing) and not self._opens(m):
            args, kwargs = with_edges(m, args, kwargs)
        if type(m) in (GroupAddRev, DeepGraphInfomax):
            forward = partial(_reversible if type(m) is GroupAddRev else _embedded, m)
        if not any(m is one for one in self.root.modules()):
            if any(True for _ in m.parameters()):
                refuse(f"{place_here()} makes a {type(m).__name__} with new weights at each call: make it in __init__")
            return forward(*args, **kwargs)
        if _are_of_categories(args, kwargs) and not any(isinstance(one, MessagePassing) for one in m.modules()):
            return self.create_proxy("call_module", self.path_of_module(m), args, kwargs)  # it is run as it is
        if not self._turns or not is_against(m) or not self.is_leaf_module(m, self.path_of_module(m)):
            return super().call_module(m, forward, args, kwargs)
        given = inspect.signature(m.forward).bind(*args, **kwargs)
        if type(edges := given.arguments.get("edge_index")) is not RowsProxy:
            return super().call_module(m, forward, args, kwargs)
        given.arguments["edge_index"] = edges.flip(0)  # along the edges the other way round
        made = super().call_module(m, forward, given.args, given.kwargs)
        made.node.meta["turned"] = True
        return made

    def create_node(self, *args: Any, **options: Any) -> Any:
        """An operation, with the line where it stands."""
        node = super().create_node(*args, **options)
        node.meta["line"], node.meta["inside"] = where(frame for frame, _ in traceback.walk_stack(sys._getframe(1)))
        return node


def _are_of_categories(args: Any, options: Any) -> bool:
    """Return whether a call gets attributes of edges that number categories, and nothing else, as OGB's encoders do."""
    given = [*args, *options.values()]
    nodes = [one.node for one in given if type(one) is RowsProxy]
    while nodes and nodes[0].op == "call_method" and nodes[0].target in ("long", "to", "view"):
        nodes[0] = nodes[0].args[0]
    return len(given) == len(nodes) == 1 and nodes[0].target is torch.ops.freshet.categories_of
