"""Exports random convs that branch on sizes of the graph, and holds each that is taken against the module itself.

    .venv/bin/python scripts/drills/sizes_of_convs.py --seed 0 --count 300

A seed draws the source of a `MessagePassing` (tests/support/graphs/own/sized_convs.py): a branch, a guard, a slice, a
factor, a loop, a choice of layer, a counter of calls, numbers taken out of torch; in forward, message, update or
aggregate, with weights or attributes of edges, on a relation, in a subclass of PyTorch Geometric's own conv, inside
another module. Each is exported. One that is taken must give what the module gives on graphs of 0 to 3,000 vertices,
without edges, with a hub, and after thousands of calls. The last line is JSON; ends with 1 where one is taken and
differs.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from torch_geometric.nn import HeteroConv

from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.oracles import kinds as kinds_oracle
from freshet.gnn.oracles import own_scale, whole_graph, whole_kinds
from freshet.gnn.plan import compile_plan
from freshet.gnn.pyg.check import TOLERANCE, off
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.export import export_model
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import WEIGHT, EdgeValues, Graph
from tests.support.graphs.own.sized_convs import SizedConv

WIDTH, ATTRIBUTES, CALLS = 4, 2, 2600
VERTICES = (0, 1, 2, 3, 4, 6, 19, 21, 99, 101, 299, 301, 999, 1001, 2499, 2501, 3000)
TO = ("a", "to", "b")
METADATA = (["a", "b"], [TO])


def graphs() -> Iterator[tuple[str, Graph]]:
    """Yield random graphs of all sizes: with few, many and no edges, and with a hub."""
    rng = np.random.default_rng(3)
    for n in VERTICES:
        for what, edges in (("no edges", 0), ("few edges", max(1, n // 3)), ("many edges", 3 * n), ("a hub", n)):
            edges = edges if n else 0
            src, dst = rng.integers(0, max(1, n), edges), rng.integers(0, max(1, n), edges)
            dst = np.zeros_like(dst) if what == "a hub" else dst
            pairs = np.unique(src * max(1, n) + dst)
            values = EdgeValues(
                len(pairs),
                {WEIGHT: rng.uniform(0.5, 1.5, len(pairs)).astype(np.float32)},
                rng.standard_normal((len(pairs), ATTRIBUTES)).astype(np.float32),
            )
            x = rng.standard_normal((n, WIDTH)).astype(np.float32)
            yield f"{n} vertices, {what}", Graph(x, pairs // max(1, n), pairs % max(1, n), values)


class OnRelation(torch.nn.Module):
    """A HeteroConv of one conv on one relation."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = HeteroConv({TO: conv})

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        """Return the rows of targets."""
        return self.conv(x_dict, edge_index_dict)["b"]


def by_module(module: Any, drawn: SizedConv, graph: Graph) -> np.ndarray:
    """Return the rows of the module itself."""
    edges = torch.from_numpy(np.stack([graph.src, graph.dst]).astype(np.int64))
    x = torch.tensor(graph.x, dtype=torch.float64)
    given = {"weight": graph.values.weight, "attr": graph.values.full_attr(ATTRIBUTES)}
    more = [torch.tensor(given[drawn.where], dtype=torch.float64)] if drawn.where in given else []
    with torch.no_grad():
        made = module({"a": x, "b": x + 1}, {TO: edges}) if drawn.relation else module(x, edges, *more)
    rows: np.ndarray = made.numpy()
    return rows


def by_model(model: Any, graph: Graph) -> tuple[list[Any], np.ndarray]:
    """Return the rows of the exported model: by the full pass with their scales, and by its plan."""
    if isinstance(model, KindsModel):
        kinds = KindsGraph([graph.x, graph.x + 1], [RelationEdges(graph.src, graph.dst, graph.values)])
        exact = kinds_oracle.forward(model, kinds, tolerance=TOLERANCE)
        made = whole_kinds.forward(compile_kinds(model), kinds)[-1][list(model.kinds).index("b")]
        return list(exact.values()), made
    return [own_scale.forward(model, graph, tolerance=TOLERANCE)], whole_graph.forward(compile_plan(model), graph)[-1]


def difference(module: Any, drawn: SizedConv, model: Any) -> str:
    """Return on which graph the module and its export differ; empty where they do nowhere."""
    for what, graph in graphs():
        try:
            want = by_module(module, drawn, graph)
        except Exception as error:
            if len(graph.x):
                return f"{what}: the module raises {type(error).__name__}: {error}"
            continue
        if not len(graph.x):  # no rows to compare
            continue
        exact, made = by_model(model, graph)
        if off([want], exact) > TOLERANCE or off([made], exact) > TOLERANCE:
            return what
    tiny = next(graph for what, graph in graphs() if what.startswith("3 vertices, many"))
    if drawn.what == "counter":
        for _ in range(CALLS):
            by_module(module, drawn, tiny)
    return "" if off([by_module(module, drawn, tiny)], by_model(model, tiny)[0]) <= TOLERANCE else "many calls"


def tried(seed: int, folder: Path) -> tuple[SizedConv, str]:
    """Return a drawn conv, and how it went: taken, refused, or WRONG with the graph on which it differs."""
    drawn, name = SizedConv(seed), f"sized_{seed}"
    (folder / f"{name}.py").write_text(drawn.source)
    torch.manual_seed(seed)
    conv = importlib.import_module(name).Drawn().eval()
    module = OnRelation(conv).eval() if drawn.relation else conv
    more: dict[str, Any] = {"metadata": METADATA, "features": {"a": WIDTH, "b": WIDTH}}
    if not drawn.relation:
        more = {"features": WIDTH, "edge_features": ATTRIBUTES if drawn.where == "attr" else None}
    try:
        model = export_model(module, folder / name, **more)
    except ExportError as error:
        line = f"{name}.py:" in str(error)
        return drawn, "refused by line" if line else f"refused: {error}"
    why = difference(module.double(), drawn, model)
    return drawn, f"WRONG on {why}" if why else "taken"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=300, help="how many seeds (default: 300)")
    parser.add_argument("--show", action="store_true", help="print the source of each that is not as it should be")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found, forms = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for seed in range(options.seed, options.seed + options.count):
            drawn, how = tried(seed, Path(folder))
            ends = how.split(":")[0].split(" on ")[0]
            kind = "harmless" if drawn.harmless else "harmful"
            found[f"{ends}, {kind}"] += 1
            forms[f"{drawn.what} in {drawn.where}: {ends}"] += 1
            if ends in ("WRONG", "refused") or (drawn.harmless and ends != "taken"):
                print(f"seed {seed} ({drawn.what} in {drawn.where}, {kind}): {how}", flush=True)
                print(drawn.source if options.show else "", end="")
    for what, count in sorted(forms.items()):
        print(f"{count:5} {what}")
    wrong = sum(count for what, count in found.items() if what.startswith("WRONG"))
    taken = {what: count for what, count in found.items() if what.startswith("taken")}
    result = {
        "convs": options.count,
        "exported": sum(taken.values()),
        "exported and different": wrong,
        "harmless taken": taken.get("taken, harmless", 0),
        "harmless refused": sum(n for what, n in found.items() if what.endswith("harmless"))
        - taken.get("taken, harmless", 0),
        "refused by line": sum(n for what, n in found.items() if what.startswith("refused by line")),
        "refused by the last check": sum(n for what, n in found.items() if what.startswith("refused,")),
    }
    print(json.dumps(result))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
