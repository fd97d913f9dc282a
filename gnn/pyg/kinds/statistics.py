"""Statistics over all vertices of a kind, frozen on the graph of `stats_from`: of norms, and HANConv's weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.kinds.calling import ModuleCall, ModuleInputs
from freshet.gnn.pyg.kinds.convs.han import Attention, attention_of, is_han, replay
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRows
from freshet.gnn.pyg.norms import reads_whole_graph
from freshet.gnn.pyg.running import clone_of
from freshet.gnn.pyg.statistics import Statistics, freezing
from freshet.gnn.pyg.steps import Step

if TYPE_CHECKING:
    from torch.nn import Module

_EXPECTED = "expected a HeteroData, or (x_dict, edge_index_dict[, edge_weight_dict][, edge_attr_dict])"
_EXPECTED_TYPED = "expected a Data with edge_type, or (x, edge_index, edge_type)"


class KindsStatistics(Statistics):
    """The frozen norms of a module with kinds, and the weights of relations in its HANConvs, call by call."""

    def __init__(self, module: Module) -> None:
        """Begin without any."""
        super().__init__(module)
        self._attention: dict[str, list[Attention]] = {}

    def attend(self, name: str, found: Attention) -> None:
        """Note the weights in the next call of the HANConv of that name."""
        self._attention.setdefault(name, []).append(found)

    def attention(self, name: str, call: int) -> Attention:
        """Return the weights in a call of a HANConv, counted from 0.

        Raises: ExportError for a call that there was not.
        """
        calls = self._attention.get(name, [])
        if call >= len(calls):
            msg = f"{name}: the module did not call it {call + 1} times on the graph of stats_from"
            raise ExportError(msg)
        return calls[call]

    def put_into(self, clone: Module) -> None:
        """Have the norms and HANConvs of a copy of the module give what the frozen ones give."""
        super().put_into(clone)
        for name, calls in self._attention.items():
            part = clone.get_submodule(name)
            part.register_forward_hook(replay(calls), with_kwargs=True)

    def freeze(self, ops: KindsOperations) -> None:
        """Put what norms have become in their places among the operations.

        Raises: ExportError for a norm that was called more often than it is read.
        """
        for name, op in ops.made.items():
            if isinstance(op, OnRows) and reads_whole_graph(op.step.op) is not None:
                layer, weights = self.take(op.step)
                ops.made[name] = op._replace(step=Step(op.step.name, layer, weights=weights))
        for name, found in self._found.items():
            if 0 < (taken := self._taken.get(name, 0)) < len(found):
                msg = f"{name}: the module calls it {len(found)} times, of which the returned rows read {taken}: "
                raise ExportError(msg + "use a norm of its own for each kind")


def gather(module: Module, call: ModuleCall, kinds: Metadata, given: Any) -> KindsStatistics:
    """Run the module on the graph of `stats_from` and freeze what it reads of all vertices there.

    Raises: ExportError when the graph is no such, or the module cannot run on it, or a frozen norm does not give what
    the norm gave.
    """
    import torch

    inputs = _typed_inputs(given) if call.types is not None else _inputs(given, kinds)
    found, clone = KindsStatistics(module), clone_of(module)
    for name, part in clone.named_modules():
        if (kind := reads_whole_graph(part)) is not None:
            part.register_forward_hook(freezing(found, name, kind))
        elif is_han(part):
            part.register_forward_hook(partial(_attending, found, name), with_kwargs=True)
    try:
        with torch.no_grad():
            call(clone, kinds, inputs)
    except ExportError:
        raise
    except Exception as error:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in zip(kinds.names, inputs.rows, strict=True))
        msg = f"stats_from: the module cannot run on this graph (x of {shapes}): {type(error).__name__}: {error}"
        raise ExportError(msg) from None
    return found


def _attending(found: KindsStatistics, name: str, module: Any, args: Any, kwargs: Any, result: Any) -> None:
    found.attend(name, attention_of(name, module, args, kwargs))


def _typed_inputs(given: Any) -> ModuleInputs:
    if all(hasattr(given, name) for name in ("x", "edge_index", "edge_type")):
        x = _numbers(given.num_nodes) if given.x is None else given.x
        given = (x, given.edge_index, given.edge_type)
    if not isinstance(given, tuple | list) or len(given) != 3:
        msg = f"stats_from: got {type(given).__name__}, {_EXPECTED_TYPED}"
        raise ExportError(msg)
    x, edges, types = (_tensor("", one) for one in given)
    return ModuleInputs([x], [edges], [], [], types, [_numbers(len(x))])


def _inputs(given: Any, kinds: Metadata) -> ModuleInputs:
    """Return what a module takes of a graph, by kind and by relation."""
    import torch

    x, edges, weights, attributes, ids = _dicts(given, kinds)
    rows, found, numbers = list[Any](), list[Any](), list[Any]()
    for kind in kinds.names:
        if kind not in x and kind not in ids:
            msg = f"stats_from has no vertices of kind {kind!r}; it has {', '.join(map(repr, x)) or 'none'}"
            raise ExportError(msg)
        rows.append(_tensor(kind, x[kind] if kind in x else ids[kind]))
        numbers.append(_tensor(kind, ids[kind]) if kind in ids else _numbers(len(rows[-1])))
    named = list[Any]()  # the relation whose edges each one has
    for number, relation in enumerate(kinds.relations):
        of = kinds.mirrors[number]
        if relation in edges:
            named.append(relation)
            found.append(_tensor(str(relation), edges[relation]))
        elif of is not None and kinds.relations[of] in edges:
            named.append(kinds.relations[of])
            found.append(_tensor(str(relation), edges[kinds.relations[of]]).flip(0))
        else:
            msg = f"stats_from has no edges of {relation}; it has {', '.join(map(str, edges)) or 'none'}"
            raise ExportError(msg)
    of_edges = [[one.get(relation) for relation in named] for one in (weights, attributes)]
    counts = [one.shape[1] for one in found]
    w = [torch.ones(n) if one is None else _tensor("", one) for n, one in zip(counts, of_edges[0], strict=True)]
    a = [torch.zeros(n, 0) if one is None else _tensor("", one) for n, one in zip(counts, of_edges[1], strict=True)]
    return ModuleInputs(rows, found, w, a, None, numbers)


def _dicts(given: Any, kinds: Metadata) -> list[Mapping[Any, Any]]:
    """Rows, edges, weights, attributes and ids of a graph, where it has them.

    Raises: ExportError saying what was given.
    """
    if hasattr(given, "node_types") and hasattr(given, "edge_types"):
        stores = [(relation, given[relation]) for relation in given.edge_types]
        edges = [
            {relation: store[name] for relation, store in stores if name in store}
            for name in ("edge_index", "edge_weight", "edge_attr")
        ]
        x = {kind: given[kind].x for kind in given.node_types if "x" in given[kind]}
        ids = {}
        for kind in given.node_types:
            name = next((name for name in ("node_id", "n_id") if name in given[kind]), None)
            if name is not None or kind not in x:
                ids[kind] = _numbers(given[kind].num_nodes) if name is None else given[kind][name]
        return [x, *edges, ids]
    if not isinstance(given, tuple | list) or not 2 <= len(given) <= 5 or not isinstance(given[0], Mapping):
        msg = f"stats_from: got {type(given).__name__}, {_EXPECTED}"
        raise ExportError(msg)
    return [{} if one is None else one for one in (*given, *[None] * (5 - len(given)))]


def _tensor(of: str, given: Any) -> Any:
    import torch

    try:
        return torch.as_tensor(np.asarray(given) if isinstance(given, list) else given).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        msg = f"stats_from: {of}: {error}; {_EXPECTED}"
        raise ExportError(msg) from None


def _numbers(count: int) -> Any:
    import torch

    return torch.arange(count)
