"""RGATConv with options that add to its attention, or scale it by the number of in-edges.

`export_model` compares each model with the module itself in float64.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.support.graphs.hetero_modules import randomised  # noqa: E402

PRODUCTS = "multiplicative-self-attention"
OPTIONS: dict[str, dict[str, Any]] = {
    "two heads": {"heads": 2},
    "a mean of heads": {"heads": 2, "concat": False, "attention_mechanism": "within-relation", "num_bases": 2},
    "several products": {"heads": 2, "dim": 2, "attention_mode": PRODUCTS},
    "a mean of products": {"heads": 2, "concat": False, "attention_mode": PRODUCTS, "bias": False},
}


@pytest.mark.parametrize("mod", ["additive", "scaled", "f-scaled"])
@pytest.mark.parametrize("what", OPTIONS)
def test_is_the_conv(what: str, mod: str, tmp_path: Path) -> None:
    export_model(randomised(pyg.RGATConv(4, 3, 3, mod=mod, **OPTIONS[what])), tmp_path / "M")


class Encoded(nn.Module):
    """Attributes are encoded in front of a conv of all types."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.encoder = pyg.RGATConv(4, 3, 3, edge_dim=5), nn.Linear(2, 5)

    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_attr: Any) -> Any:
        return self.conv(x, edge_index, edge_type, self.encoder(edge_attr))


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"adds 1 to weights above 0, .* Nearest: mod='additive'"):
        export_model(pyg.RGATConv(4, 3, 3, mod="f-additive"), tmp_path / "M")
    with pytest.raises(ExportError, match="gets a function of attributes, which is not supported beside types yet"):
        export_model(Encoded(), tmp_path / "M")
