"""Declarations of relations, and of the layers that read vertices of several kinds."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from freshet.gnn.declarations import AnyConv
from freshet.gnn.kinds.names import check_type
from freshet.gnn.rows.dense import AnyDense
from freshet.gnn.rows.jumps import CURRENT, Join, Keep
from freshet.gnn.rows.layer import Layer, Width

RowLayer = Annotated[AnyDense | Keep | Join, Field(discriminator="type")]
Grouping = Literal["sum", "mean", "min", "max", "mul", "cat", "softmax"]


def types_of(layers: object) -> tuple[str, ...]:
    """Return the names of the layers of a union, as model.json has them."""
    return tuple(layer.model_fields["type"].default for layer in get_args(layers))


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DeclaredRelation(_Declared):
    """Edges of one type from vertices of one kind to those of another one, or of the same.

    Args:
        source: Kind of the sources.
        type: Name of the type in events.
        target: Kind of the targets.
        edge_features: Width of the attributes of its edges; 0: the graph keeps none.
        mirrors: Number of the relation whose edges it follows by itself, from target to source.
    """

    source: str
    type: str
    target: str
    edge_features: Annotated[int, Field(ge=0)] = 0
    mirrors: Annotated[int, Field(ge=0)] | None = None

    @field_validator("type")
    @classmethod
    def _can_be_shown(cls, name: str) -> str:
        check_type(name)
        return name

    @model_serializer(mode="wrap")
    def _short(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out that there are no attributes, and that it mirrors none."""
        fields: dict[str, Any] = serialize(self)
        unsaid = {"edge_features": 0, "mirrors": None}
        return {name: value for name, value in fields.items() if unsaid.get(name, ...) != value}

    @property
    def ends(self) -> tuple[str, str, str]:
        """Source, type and target, which no other relation of the model has."""
        return self.source, self.type, self.target

    def __str__(self) -> str:
        return ",".join(self.ends)


class DeclaredLearned(_Declared):
    """Rows learned for each vertex of a kind, looked up by its id; zeros for an id that was not there at training.

    Args:
        rows: Widths of the rows by name. Layers read them as rows that were kept under that name.
        count: Number of ids.
        ids: Type of the ids: int or string.
    """

    rows: Annotated[dict[str, Width], Field(min_length=1)]
    count: Annotated[int, Field(ge=1)]
    ids: Literal["int", "string"] = "int"

    @field_validator("rows")
    @classmethod
    def _are_no_others(cls, rows: dict[str, int]) -> dict[str, int]:
        if CURRENT in rows or "" in rows:
            msg = f"learned rows are named {list(rows)}, expected names other than {CURRENT!r} and none empty"
            raise ValueError(msg)
        return rows

    @property
    def width(self) -> int:
        """Width of all rows of a vertex side by side."""
        return sum(self.rows.values())


class RelationConv(_Declared):
    """The conv of one relation: its messages go along the edges of that relation alone."""

    relation: Annotated[int, Field(ge=0)]
    conv: Annotated[AnyConv, Field(discriminator="type")]


class HeteroConv(_Declared):
    """A conv for each of some relations: x_v' = aggr of what the convs of all relations into v's kind make.

    Behind it those kinds alone are there that one of its relations reaches, as in PyG's HeteroConv. The relations of a
    kind count whether or not v has edges of them.

    Args:
        aggr: How the results of several relations become one: sum, mean, min, max or mul, value by value; or cat, side
            by side in the order of `convs`. Or softmax: convs of attention weigh the in-edges of all relations by one
            softmax (HGT, RGAT), and what they add of the vertex itself is added up.
        convs: One or more convs, each with the number of its relation.
    """

    type: Literal["hetero_conv"] = "hetero_conv"
    aggr: Grouping = "sum"
    convs: Annotated[list[RelationConv], Field(min_length=1)]


class ByKind(_Declared):
    """Layers of a row for each kind; rows of kinds that are not named stay as they are.

    Rows are kept and joined within a kind. A kind that no relation reached goes on from rows that were kept before.

    Args:
        layers: For each kind a list of dense layers, keep and join.
    """

    type: Literal["by_kind"] = "by_kind"
    layers: dict[str, list[RowLayer]]


AnyKindsLayer = Annotated[HeteroConv | ByKind, Field(discriminator="type")]
KINDS_LAYER_TYPES = types_of(HeteroConv | ByKind)


def row_layers(layer: ByKind) -> dict[str, list[Layer]]:
    """Return the layers of each kind."""
    return {kind: list(layers) for kind, layers in layer.layers.items()}
