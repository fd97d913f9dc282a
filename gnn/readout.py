"""Widths and heads of embeddings, by kind, without the layers that make them."""

from __future__ import annotations

from pathlib import Path

from freshet.gnn.kinds.model import KindsModel, load_any_model
from freshet.gnn.kinds.names import head_name
from freshet.gnn.layers.chain import LogitsHead
from freshet.gnn.model import Model


class Readout:
    """The widths of a model's embeddings by kind, and its heads; the code of layers that a user wrote is not needed.

    `widths`: under an empty name where the model returns one kind, or has none.
    """

    def __init__(self, model: Model | KindsModel) -> None:
        """Take a model."""
        kinds = isinstance(model, KindsModel)
        widths = model.out_widths if isinstance(model, KindsModel) else {"": model.out_width}
        layers = model.heads if isinstance(model, KindsModel) else {"": model.head}
        heads = {
            kind: LogitsHead.of(model, of, head_name(kind) if kinds else "head", widths[kind])
            for kind, of in layers.items()
            if of
        }
        one = len(widths) == 1
        self.widths = {"" if one else kind: width for kind, width in widths.items()}
        self._heads = {"" if one else kind: head for kind, head in heads.items()}

    def head(self, kind: str) -> LogitsHead | None:
        """Return the head of a kind by its name in `widths`; None where it has none."""
        return self._heads.get(kind)


def load_readout(folder: str | Path) -> Readout:
    """Read a model folder, and return the widths and heads of its embeddings.

    Raises: ModelError as `load_any_model`.
    """
    return Readout(load_any_model(folder))
