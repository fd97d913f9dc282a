"""Runs a module: on small rows, which size it, and on graphs, for comparison with its export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import Module

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.asked import Asked
from freshet.gnn.pyg.forward.parameters import ModuleInputs
from freshet.gnn.pyg.forward.places import blamed
from freshet.gnn.pyg.kinds.building import KindHead
from freshet.gnn.pyg.kinds.calling import ModuleCall
from freshet.gnn.pyg.kinds.looking_up import Learned, is_embedding
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.widths import how_wide
from freshet.gnn.pyg.running import copy_of, forget
from freshet.gnn.pyg.statistics import Statistics
from freshet.kinds_graph import KindsGraph


def given_of(run: Run, graph: KindsGraph, dtype: Any) -> ModuleInputs:
    """Return what a module is given of a graph, in new tensors."""
    call = run.call

    def tensor(values: np.ndarray) -> Any:
        return torch.from_numpy(values.astype(dtype))

    counts = [len(x) for x in graph.x]
    places = [run.learned[k].places(n) if k in run.learned else np.arange(n) for k, n in enumerate(counts)]
    ids = [torch.from_numpy(one) for one in places]
    rows = [ids[k] if k in run.ids else tensor(x) for k, x in enumerate(graph.x)]
    ends = [np.stack([one.src, one.dst]).astype(np.int64) for one in graph.edges]
    values = [one.values for one in graph.edges]
    weights, attributes = [tensor(one.weight) for one in values], [tensor(one.full_attr(0)) for one in values]
    if call.types is not None:
        types = np.repeat(np.arange(len(ends)), [one.shape[1] for one in ends])
        edges = [torch.from_numpy(np.concatenate(ends, axis=1))]
        of_all = [torch.cat(weights)], [torch.cat(attributes)]
        return ModuleInputs(rows, edges, *of_all, torch.from_numpy(types), ids)
    return ModuleInputs(rows, [torch.from_numpy(one) for one in ends], weights, attributes, None, ids)


@dataclass(frozen=True)
class Run:
    """A way to run a module: what it is called with, its kinds and relations, and which of its results is meant.

    learned: by kind; ids: kinds whose features are ids; heads: those of returned kinds, in their order.
    frozen: what copies are to read in place of what they read of all vertices.
    """

    call: ModuleCall
    kinds: Metadata
    asked: Asked
    learned: Mapping[int, Learned] = field(default_factory=dict)
    ids: frozenset[int] = frozenset()
    heads: Mapping[int, KindHead | None] = field(default_factory=dict)
    frozen: Statistics | None = None

    def __call__(self, copy: Module, graph: KindsGraph, dtype: Any) -> list[np.ndarray]:
        """Return the embeddings of each kind that a module returns, in its order, then the logits of those with heads.

        Raises: ExportError where it returns something other than rows; whatever it raises itself.
        """
        forget(copy)
        calls = _Calls(copy, self.heads.values())
        with torch.no_grad(), calls:
            out = self.asked.of(copy, self.call(copy, self.kinds, given_of(self, graph, dtype)))
        listed = [one for one in out.values() if one is not None] if isinstance(out, dict) else [out]
        for one in listed:
            if not isinstance(one, torch.Tensor):
                of = "kind" if self.kinds.are_named else "layer"
                refuse(f"the module returns {type(one).__name__}, expected the rows of a {of}")
        listed = [one.reshape(-1, 1) if one.ndim < 2 else one for one in listed]  # a number for each vertex
        if not any(self.heads.values()):
            return [one.numpy() for one in listed]
        with torch.no_grad():
            pairs = [calls.split(head, one) for head, one in zip(self.heads.values(), listed, strict=True)]
        return [rows.numpy() for rows, _ in pairs] + [made.numpy() for _, made in pairs if made is not None]


class _Calls:
    """The calls of heads in one run of a module: what each read, and the rows that it gave."""

    def __init__(self, copy: Module, heads: Iterable[KindHead | None]) -> None:
        """Take a copy of the module, and the heads."""
        names = {head.name for head in heads if head is not None and head.is_called}
        self._copy, self._parts = copy, {name: copy.get_submodule(name) for name in names}
        self._hooks, self._read, self._calls = list[Any](), dict[str, list[Any]](), list[tuple[str, Any, Any]]()

    def __enter__(self) -> None:
        """Begin to listen."""
        for name, part in self._parts.items():
            self._hooks.append(part.register_forward_pre_hook(partial(self._begins, name)))
            self._hooks.append(part.register_forward_hook(partial(self._ends, name)))

    def __exit__(self, *exception: object) -> None:
        """Leave the copy as it was."""
        for hook in self._hooks:
            hook.remove()

    def _begins(self, name: str, part: Any, args: Any) -> None:
        self._read.setdefault(name, []).append(args[0].detach().clone())

    def _ends(self, name: str, part: Any, args: Any, result: Any) -> None:
        self._calls.append((name, self._read[name].pop(), result))

    def split(self, head: KindHead | None, rows: Any) -> tuple[Any, Any]:
        """Return the embedding of returned rows, and its logits; None for those without a head.

        Raises: ExportError for rows that the head did not give.
        """
        if head is None:
            return rows, None
        if not head.is_called:
            return rows, self._copy.get_submodule(head.name)(rows.clone())
        for name, read, made in self._calls:
            if name == head.name and made.data_ptr() == rows.data_ptr():
                return read, rows
        refuse(f"head={head.name!r} did not give the rows that the module returns")


def initialised(
    module: Module, call: ModuleCall, kinds: Metadata, features: Mapping[str, int], edge_features: int | None
) -> Module:
    """Return the module with all sizes known; it is a copy already.

    Raises: ExportError where the width of a kind's features is needed and not given.
    """
    lazy = [name for name, one in module.named_parameters() if torch.nn.parameter.is_lazy(one)]
    if not lazy:
        return module
    missing = [name for name in kinds.names if name not in features]
    if missing and not any(map(is_embedding, module.modules())):
        refuse(
            f"{lazy[0]}: its size is not known yet (in_channels=-1); run the module once before exporting it, or give "
            f"the widths of the features of all kinds: features={{{missing[0]!r}: N, ...}}"
        )
    failed = list[Exception]()
    for width in _edge_widths(module) if edge_features is None else [edge_features]:
        sized = copy_of(module)
        try:
            with torch.no_grad():
                call(sized, kinds, _small(call, kinds, features, width))
        except Exception as error:
            failed.append(error)
        else:
            return sized
    place, _ = blamed(failed[0])
    msg = f"the module fails{f' at {place}' if place else ''} on a small graph, which is to size it "
    msg += f"({type(failed[0]).__name__}: {failed[0]})"
    if missing:
        msg += f"; its features of kind {missing[0]!r} were ids: {how_wide(kinds, missing[0])}, where it has any"
    raise ExportError(msg) from failed[0]


def _small(call: ModuleCall, kinds: Metadata, features: Mapping[str, int], edge_width: int) -> ModuleInputs:
    """Return what a module is given of a small graph; kinds without a width of features have ids in their place."""
    ids, many = torch.zeros(2, dtype=torch.int64), 1 if call.types is not None else len(kinds.relations)
    return ModuleInputs(
        [torch.zeros((2, features[name])) if name in features else ids for name in kinds.names],
        [torch.zeros((2, 1), dtype=torch.int64)] * many,
        [torch.ones(1)] * many,
        [torch.zeros((1, edge_width))] * many,
        None if call.types is None else torch.zeros(1, dtype=torch.int64),
        [ids] * len(kinds.names),
    )


def _edge_widths(module: Module) -> list[int]:
    """Return widths that attributes may have: what convs say, then what layers in front of these read.

    Those of several widths have sizes of their own by then.
    """
    parts: list[Any] = list(module.modules())
    said = [getattr(one, name, None) for name in ("edge_dim", "in_features", "in_channels") for one in parts]
    return list(dict.fromkeys([*(one for one in said if isinstance(one, int) and one > 0), 1]))
