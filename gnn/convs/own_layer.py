"""Declaration of a layer whose functions a user wrote; its code is not in the model."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue

from freshet.gnn.convs.base import Conv
from freshet.gnn.rows.layer import Shape

CODE = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
"""Pattern of a class's name, PACKAGE.MODULE:CLASS."""


class OwnLayer(Conv):
    """x_v' = update(aggr_u message(source(x_u), target(x_v), e_uv), own(x_v)), functions of a class that a user wrote.

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, at least 1.
        edge_channels: Width of the attributes e_uv of an edge; 0: it reads none.
        code: Name of the class, PACKAGE.MODULE:CLASS, in a module that --layers names.
        source: SHA-256 of the source of that module, in hex; where it imports modules of the user's, of all of these.
        options: What the class takes besides weights, by name.
        shapes: Shapes of its weights, by name.
        target_channels: Width of the rows of targets in a relation: 0 where no function reads them; left out where it
            is that of sources.

    Weights: those that `shapes` names. All float32.

    Shapes: x (n, in_channels) float32, of targets (m, target_channels); e (edges, edge_channels) float32; result
        (m, out_channels) float32.
    Raises: ValueError for an unknown option or value.
    Source: the user's class.
    """

    LATER: ClassVar[dict[str, Any]] = {"target_channels": None}

    BETWEEN_KINDS: ClassVar[bool] = True
    type: Literal["own_layer"] = "own_layer"
    edge_channels: Annotated[int, Field(ge=0)] = 0
    code: Annotated[str, Field(pattern=f"^{CODE}$")]
    source: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    options: dict[str, JsonValue] = Field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    target_channels: Annotated[int, Field(ge=0)] | None = None

    @property
    def reads_own(self) -> bool:
        """True unless no function of the class reads rows of targets, as far as the entry says."""
        return self.target_channels != 0

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return dict(self.shapes)
