"""Models of DGL's examples, ported to PyTorch Geometric by their weights, exported, and compared with DGL on a stream.

    PYTHONPATH=SITE python scripts/tools/dgl_examples.py --examples CHECKOUT/examples/pytorch

SITE is a folder with DGL, installed with `pip install --target`: it is no dependency of ours. The models are the
classes of DGL's scripts, made with small sizes, and DGL itself computes what their rows have to be. A port keeps a
model's own `forward` where that calls layers alone: each layer is replaced by one of PyTorch Geometric, or by a few
lines of `MessagePassing`, with the same weights. Self-loops that DGL's scripts add to their graph belong to the stream,
except for those that a layer adds itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.setdefault("DGLBACKEND", "pytorch")

import dgl  # type: ignore[import-not-found,unused-ignore]
import torch
from torch import nn

from freshet.gnn.model import Model
from freshet.gnn.pyg.export import ExportError, export_model
from scripts.tools.dgl_ports import ported
from scripts.tools.pyg_examples import ALLOWED, CLASSES, WIDTH, compared, module_of

RELU = "nn.functional.relu"


class Example(NamedTuple):
    """One example: how DGL's model is made, and how it is called with a graph `g`, rows `x` and attributes `attr`."""

    script: str
    make: str
    call: str = "model(g, x)"
    loops: bool = False
    edge_width: int = 0


EXAMPLES = (
    Example("gcn/train.py", f"GCN({WIDTH}, 8, {CLASSES})"),
    Example("gat/train.py", f"GAT({WIDTH}, 4, {CLASSES}, [2, 3])", loops=True),
    Example("gatv2/gatv2.py", f"GATv2(2, {WIDTH}, 4, {CLASSES}, [2, 2, 3], {RELU}, 0.6, 0.6, 0.2, True)", loops=True),
    Example("graphsage/train_full.py", f"SAGE({WIDTH}, 8, {CLASSES})"),
    Example("appnp/appnp.py", f"APPNP(None, {WIDTH}, [8], {CLASSES}, {RELU}, 0.5, 0.5, 0.1, 4)", "model(x)"),
    Example("sgc/sgc.py", f"SGConv({WIDTH}, {CLASSES}, k=2)"),
    Example("tagcn/tagcn.py", f"TAGCN(None, {WIDTH}, 8, {CLASSES}, 1, {RELU}, 0.5)", "model(x)"),
    Example("monet/citation.py", f"MoNet(None, {WIDTH}, 8, {CLASSES}, 1, 2, 3, 0.5)", "model(x, attr)", edge_width=2),
    Example("mixhop/main.py", f"MixHop({WIDTH}, 6, {CLASSES}, 2, [0, 1, 2], activation=torch.tanh, batchnorm=True)"),
    Example("arma/model.py", f"ARMA4NC({WIDTH}, 6, {CLASSES}, 2, 2, {RELU})"),
    Example("dagnn/main.py", f"DAGNN(3, {WIDTH}, 8, {CLASSES})"),
    Example("jknet/model.py", f"JKNet({WIDTH}, 6, {CLASSES}, 2, 'cat')"),
    Example("geniepath/model.py", f"GeniePath({WIDTH}, {CLASSES}, 8, 2, 2)"),
)


class OnEdges(nn.Module):
    """A model of DGL, called as one of PyTorch Geometric; `graph_of` makes its graph of edges."""

    def __init__(self, model: nn.Module, example: Example, graph_of: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.example, self.graph_of = model, example, graph_of

    def forward(self, x: Any, edge_index: Any, edge_attr: Any = None) -> Any:
        """Return the rows.

        Shapes: x (n, width); edge_index (2, e) int64; edge_attr (e, edge width); result (n, classes)
        """
        g = self.graph_of(edge_index, len(x), self.example.loops)
        if hasattr(self.model, "g"):
            self.model.g = g
        return eval(self.example.call, {"model": self.model, "g": g, "x": x, "attr": edge_attr})


def _dgl_graph(edge_index: Any, count: int, loops: bool) -> Any:
    found = dgl.graph((edge_index[0], edge_index[1]), num_nodes=count)
    return dgl.add_self_loop(dgl.remove_self_loop(found)) if loops else found


def _edges(edge_index: Any, _count: int, _loops: bool) -> Any:
    return edge_index


def result(checkout: Path, example: Example) -> str:
    """Return what becomes of an example, in a line."""
    torch.manual_seed(5)
    entry = {"script": example.script, "make": example.make, "names": {"args": "Names(p=[0, 1, 2])"}}
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        model = module_of(checkout / example.script, entry)
        for part in model.modules():
            part._allow_zero_in_degree = True  # of vertices without in-edges
        call = "module(x, edge_index, edge_attr)" if example.edge_width else "module(x, edge_index)"
        by_dgl = OnEdges(model, example, _dgl_graph).eval()
        port = OnEdges(ported(model, example.loops), example, _edges).eval()
        try:
            taken = export_model(port, folder, features=WIDTH, edge_features=example.edge_width or None)
        except ExportError as error:
            return f"refused, {str(error).splitlines()[0]}"
        assert isinstance(taken, Model)  # none of them has kinds
        off, rows = compared(by_dgl, taken, call)
    return f"{'equal' if off <= ALLOWED else 'DIFFERS'}, off by {off:.1e} in {rows} rows"


def main() -> None:
    """Print a line for each model, and how many are equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=Path, required=True, help="the folder examples/pytorch of a checkout of DGL")
    parser.add_argument("--only", default="", help="those whose script has these letters")
    asked = parser.parse_args()
    found = list[str]()
    for example in EXAMPLES:
        if asked.only in example.script:
            found.append(result(asked.examples, example))
            print(f"{example.script}: {found[-1]}", flush=True)
    equal, differ = (sum(one.startswith(word) for one in found) for word in ("equal", "DIFFERS"))
    print(f"DGL {dgl.__version__}: {len(found)} models: {equal} equal, {differ} differ")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
