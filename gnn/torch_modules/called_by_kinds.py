"""Modules of models with kinds of vertices, called with dicts; those of one kind also as modules without kinds are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from freshet.gnn.kinds.learned import PREFIX
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.torch_modules.errors import refuse_input
from freshet.gnn.torch_modules.inputs import by_key, edges_of, learned_rows, of_type, rows_of
from freshet.gnn.torch_modules.module import FreshetModule
from freshet.gnn.torch_modules.passes import GraphOfKinds, pass_over_kinds
from freshet.gnn.torch_modules.weights import under

_DICTS = "x_dict", "edge_index_dict", "edge_weight_dict", "edge_attr_dict", "ids"


class _ByDicts(FreshetModule):
    """Base of the modules that take dicts."""

    def _by_dicts(self, x: Any, edges: Any, weights: Any, attributes: Any, ids: Any) -> dict[str, Tensor]:
        """Return the embeddings by kind, given dicts."""
        model = self._kinds_model
        x = {} if x is None else x
        featured = [kind for kind, width in model.kinds.items() if width]
        given = x if isinstance(x, Mapping) else by_key(x, featured, "x_dict")
        if unneeded := [kind for kind in given if model.kinds.get(kind) == 0]:
            refuse_input(f"x_dict: the kind {unneeded[0]!r} has learned rows alone; leave it out, and give its ids")
        rows_by_kind = by_key(given, featured, "x_dict")
        ids_by_kind = by_key(ids, list(model.learned), "ids", optional=True)
        rows, learned = dict[str, Tensor](), dict[str, dict[str, Tensor]]()
        for kind, width in model.kinds.items():
            self.add_kind(kind, width, rows_by_kind.get(kind), ids_by_kind.get(kind), rows, learned)
        relations = [one.ends for one in model.relations]
        parts = (
            by_key(edges, relations, "edge_index_dict"),
            by_key(weights, relations, "edge_weight_dict", optional=True),
            by_key(attributes, relations, "edge_attr_dict", optional=True),
        )
        real, found = next(iter(rows.values())).dtype, []
        for relation in model.relations:
            found.append(
                edges_of(
                    *(part[relation.ends] for part in parts),
                    ends=(len(rows[relation.source]), len(rows[relation.target])),
                    width=relation.edge_features,
                    real=real,
                    names=[f"{name}[{relation.ends!r}]" for name in _DICTS[1:4]],
                )
            )
        return pass_over_kinds(model, self, GraphOfKinds(rows, learned, found))

    def add_kind(
        self, kind: str, width: int, x: Any, ids: Any, rows: dict[str, Tensor], learned: dict[str, dict[str, Tensor]]
    ) -> None:
        """Enter the rows of a kind, and its learned rows where it has such."""
        model = self._kinds_model
        if width:
            rows[kind] = rows_of(x, width, self._real(), f"x_dict[{kind!r}]")
        if kind not in model.learned:
            return
        tensors = under(self, f"{PREFIX}{kind}")
        count = len(rows[kind]) if width else None
        found = learned[kind] = learned_rows(model.learned[kind], tensors, ids, f"ids[{kind!r}]", count)
        if not width:
            rows[kind] = next(iter(found.values()))[:, :0]

    @property
    def _kinds_model(self) -> KindsModel:
        assert isinstance(self._declared, KindsModel)  # module_of chooses the class
        return self._declared


class KindsModule(_ByDicts):
    """Module of a model with kinds of vertices and relations between them."""

    def forward(
        self,
        x_dict: Mapping[str, Tensor],
        edge_index_dict: Mapping[Any, Tensor],
        edge_weight_dict: Mapping[Any, Tensor] | None = None,
        edge_attr_dict: Mapping[Any, Tensor] | None = None,
        ids: Mapping[str, Any] | None = None,
    ) -> dict[str, Tensor]:
        """Return the embeddings of the vertices of each returned kind.

        Keys are kinds, and (source kind, type, target kind) of every relation of the model, mirrors included.

        Shapes: rows of a kind (n, its features); edges of a relation (2, e) int64; their weights (e,), 1 by default;
            their attributes (e, edge features of the relation), 0 by default; ids of a kind with learned rows (n,)
            int64, or n strings; results (n, width of the kind)
        Raises: ModuleInputError naming the argument and the key that do not fit.
        """
        return self._by_dicts(x_dict, edge_index_dict, edge_weight_dict, edge_attr_dict, ids)


class OneKindModule(_ByDicts):
    """Module of a model of one kind of vertices: of several edge types, or with learned rows.

    A model of one edge type is called without `edge_type`.
    """

    def forward(self, *args: Any, **named: Any) -> Any:
        """Return the embeddings of all vertices, given (x, edge_index, edge_type, edge_weight, edge_attr, ids).

        All but the first three are optional; there is no `edge_type` where the model has one. `x` is None where
        learned rows are all that the model reads. Given dicts, it is called as `KindsModule` is, and returns a dict.

        Shapes: x (n, features); edge_index (2, e) int64; edge_type (e,) int64, numbers of the model's types in their
            order; edge_weight (e,), 1 by default; edge_attr (e, edge features), 0 by default; ids (n,) int64, or n
            strings; result (n, width)
        Raises: ModuleInputError naming the argument that does not fit; TypeError for other arguments.
        """
        if named.keys() & set(_DICTS[:4]) or any(isinstance(one, Mapping) for one in args[:2]):
            return self._by_dicts(*_bound(_DICTS, args, named, required=2))
        several = len(self._kinds_model.relations) > 1
        names = ("x", "edge_index", *(["edge_type"] if several else []), "edge_weight", "edge_attr", "ids")
        values = _bound(names, args, named, required=3 if several else 2)
        given = dict(zip(names, values, strict=True))
        (rows,) = self._plainly(given).values()
        return rows

    def _plainly(self, given: dict[str, Any]) -> dict[str, Tensor]:
        model, ids = self._kinds_model, given["ids"]
        [(kind, width)] = model.kinds.items()
        ids = ids.get(kind) if isinstance(ids, Mapping) else ids
        rows, learned = dict[str, Tensor](), dict[str, dict[str, Tensor]]()
        if not width and given["x"] is not None:
            refuse_input("x: the model has learned rows alone; give None, and the ids of the vertices")
        if ids is not None and not model.learned:
            refuse_input("ids: the model has no learned rows; leave them out")
        self.add_kind(kind, width, given["x"], ids, rows, learned)
        count, real = len(rows[kind]), rows[kind].dtype
        widest = max(one.edge_features for one in model.relations)
        values = given["edge_index"], given["edge_weight"], given["edge_attr"]
        edges = edges_of(*values, ends=(count, count), width=widest, real=real)
        if "edge_type" in given:
            names = [one.type for one in model.relations]
            types = of_type(given["edge_type"], len(edges.src), names)
            counts = torch.bincount(types, minlength=len(names)).tolist()
            found = [edges.chosen(places) for places in types.argsort(stable=True).split(counts)]
        else:
            found = [edges]
        return pass_over_kinds(model, self, GraphOfKinds(rows, learned, found))


def _bound(names: tuple[str, ...], args: tuple[Any, ...], named: dict[str, Any], *, required: int) -> list[Any]:
    """Return the arguments by their names in order, None for those that are not given.

    Raises: TypeError for one that is not known, is given twice, or is missing.
    """
    unknown = [name for name in named if name not in names]
    if unknown or len(args) > len(names):
        what = f"an argument {unknown[0]!r}" if unknown else f"{len(args)} arguments"
        msg = f"the module got {what}, expected ({', '.join(names)})"
        raise TypeError(msg)
    given = dict(zip(names, args, strict=False))
    if twice := sorted(given.keys() & named.keys()):
        msg = f"the module got the argument {twice[0]!r} twice"
        raise TypeError(msg)
    given |= named
    if missing := [name for name in names[:required] if name not in given]:
        msg = f"the module lacks the argument {missing[0]!r}, expected ({', '.join(names)})"
        raise TypeError(msg)
    return [given.get(name) for name in names]
