"""Functions of stored rows at the read, by kind, without the layers that make the rows."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from freshet.gnn.kinds.model import KindsModel, load_any_model
from freshet.gnn.kinds.names import head_name
from freshet.gnn.layers.chain import LogitsHead
from freshet.gnn.layers.link_scores import LinkScores
from freshet.gnn.link_head import LinkHead
from freshet.gnn.model import Model, ModelError, WeightedModel

_ROWS_AT_ONCE = 8192  # what lies between may be much wider than the rows


class Readout(Protocol):
    """A function that is applied, at the read, to the stored rows of one kind.

    Contract:
    - the values of a row depend on that row alone, and the same row gives the same bits, in any process;
    - nothing of it is stored: another readout needs no new table.
    """

    width: int
    """Numbers of float32 that it adds to a row: answers are bounded by them before they are made."""

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return its values by the names of their fields in answers, in this order; also of no rows.

        Shapes: rows (n, width of the embedding) float32; a column (n,) or (n, k)
        """


class Logits:
    """The readout of a head: its logits, and the class with the largest one."""

    def __init__(self, head: LogitsHead) -> None:
        self._head, self.width = head, head.width

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return `logits` (n, classes) float32 and `class` (n,) int64."""
        some = range(0, max(len(rows), 1), _ROWS_AT_ONCE)
        logits = np.concatenate([self._head.logits(rows[at : at + _ROWS_AT_ONCE]) for at in some])
        return {"logits": logits, "class": logits.argmax(1) if logits.size else np.empty(0, np.int64)}


class Readouts:
    """The widths of a model's embeddings by kind, and its readouts; the code of layers that a user wrote is not needed.

    `widths`: under an empty name where the model returns one kind, or has none.
    """

    def __init__(self, model: Model | KindsModel) -> None:
        """Take a model."""
        self.sha256 = model.sha256()
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
        self._readouts = {"" if one else kind: Logits(head) for kind, head in heads.items()}
        self._model, self._kind = model, next(iter(widths)) if one else ""
        self._link_scores = dict[tuple[str, str], LinkScores]()

    def of(self, kind: str) -> Readout | None:
        """Return the readout of a kind by its name in `widths`; None where it has none."""
        return self._readouts.get(kind)

    @property
    def scored_kinds(self) -> list[tuple[str, str]]:
        """Kinds of the left and the right row of each link head; none where the model has no kinds."""
        model = self._model
        return [(one.left, one.right) for one in model.link_heads] if isinstance(model, KindsModel) else []

    def link_scores(self, left: str = "", right: str = "") -> LinkScores:
        """Return what scores pairs of embeddings of these kinds, by their names in `widths`.

        Raises: ModelError where the model has no head for them, though for others, or their rows differ in width.
        """
        if (left, right) not in self._link_scores:
            head, where = self._link_head(left or self._kind, right or self._kind)
            if head is None and self.widths[left] != self.widths[right]:
                msg = f"embeddings of {left} are {self.widths[left]} wide and those of {right} {self.widths[right]}, "
                raise ModelError(msg + "so that they have no dot product; export the model with a link_head for both")
            self._link_scores[left, right] = LinkScores(self._model, head, where)
        return self._link_scores[left, right]

    def _link_head(self, left: str, right: str) -> tuple[LinkHead | None, str]:
        """Return the head for two kinds, and what the names of its weights begin with; None for the dot product."""
        model = self._model
        if not isinstance(model, KindsModel):
            return model.link_head, "link_head"
        for i, one in enumerate(model.link_heads):
            if (one.left, one.right) == (left, right):
                return one, f"link_heads.{i}"
        if model.link_heads:
            there = ", ".join(f"{one.left} and {one.right}" for one in model.link_heads)
            msg = f"the model has no link head for {left} and {right}; it has one for {there}"
            raise ModelError(msg)
        return None, ""


@cache
def dot_product() -> LinkScores:
    """Return what scores pairs where no model is known."""
    return LinkScores(WeightedModel(weights={}), None, "")


def load_readouts(folder: str | Path) -> Readouts:
    """Read a model folder, and return the widths and readouts of its embeddings.

    Raises: ModelError as `load_any_model`.
    """
    return Readouts(load_any_model(folder))
