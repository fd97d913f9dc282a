"""Reads random convs as users write them, and holds what was read against PyTorch Geometric on random streams.

    .venv/bin/python scripts/drills/read_convs.py --seed 0 --count 300

A seed draws the source of a `MessagePassing`: what stands before and behind `propagate`, message, update, aggregate,
weights or attributes of edges, attention. It is exported, and a job of it runs in the simulator, in 1 to 4 parts, with
deletions and crashes: after every epoch its rows must be those of the module in float64. A conv may be refused instead,
with the line of its code. Ends with 1 where one is wrong, differs at the export, or is refused without a line.

With --relations the conv reads the rows of two kinds, beside a SAGEConv in a HeteroConv: export compares it with the
module, and the job's rows must be those of the model's full pass in float64.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from torch_geometric.nn import HeteroConv, SAGEConv

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.pyg.aggregations import with_quantiles
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.export import export_model
from freshet.operators.epochs.cut_log import CutLog
from freshet.schema import Graph
from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.hetero_modules import CITES, METADATA, WIDTHS, WRITES
from tests.support.graphs.models import IN_WIDTH
from tests.support.simulation.changing_edges import crashes_of
from tests.support.simulation.drawn import simulate
from tests.support.simulation.drawn_kinds import draw_kinds

WIDTH = 4
HEAD = '''"""Drawn by scripts/drills/read_convs.py."""
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, degree, remove_self_loops, scatter, softmax


class Drawn(MessagePassing):
    def __init__(self):
        super().__init__(aggr={aggr!r}, node_dim=0)
'''
UNARY = (
    *("torch.sigmoid({})", "torch.tanh({})", "F.relu({})", "F.leaky_relu({}, 0.2)", "F.elu({})", "F.softplus({})"),
    *("-{}", "0.5 * {}", "{} * 2 - 1", "({}).abs()", "torch.exp(-({}).abs())", "({}) ** 2", "F.silu({})", "F.gelu({})"),
    *("torch.sqrt(1 + ({}).abs())", "torch.log(1 + ({}).abs())", "({}).clamp(-1, 1)", "torch.clamp({}, min=0.1)"),
    *("torch.log1p(({}).abs())", "F.hardswish({})", "torch.softmax(({}).view(-1, 2, 2), dim=-1).flatten(1)"),
    *("torch.expm1(-({}).abs())", "F.layer_norm(({}).view(-1, 2, 2), (2,)).flatten(1)"),
    *("F.normalize({}, dim=-1)", "torch.softmax({}, dim=-1)", "({}).mean(dim=-1, keepdim=True).expand(-1, 4)"),
    *(
        "({}).view(-1, 2, 2).flip(1).reshape(-1, 4)",
        "F.dropout({}, 0.5, training=self.training)",
        "1 / (1 + ({}).abs())",
    ),
)
BINARY = (
    *("{} + {}", "{} - {}", "({}) * ({})", "torch.maximum({}, {})", "torch.minimum({}, {})", "({}) / (1 + ({}).abs())"),
    *("torch.sigmoid({}) * ({})", "({}) * ({}).sum(dim=-1, keepdim=True)"),
    *("torch.lerp({}, {}, 0.3)", "torch.logaddexp({}, {})", "torch.clamp({}, max={})"),
)
MODULES = (
    *(
        "nn.Linear({}, 4)",
        "nn.Linear({}, 4, bias=False)",
        "nn.Sequential(nn.Linear({}, 7), nn.ReLU(), nn.Linear(7, 4))",
    ),
    "nn.Sequential(nn.Linear({}, 4), nn.BatchNorm1d(4), nn.LeakyReLU(0.1), nn.Dropout(0.2), nn.Linear(4, 4))",
    *("nn.Sequential(nn.Linear({}, 4), nn.LayerNorm(4))", "nn.Sequential(nn.Linear({}, 4), nn.PReLU())"),
)
AGGREGATORS: tuple[Any, ...] = (
    "add",
    "add",
    "sum",
    "mean",
    "mean",
    "max",
    "max",
    "min",
    "std",
    ["sum", "max"],
    ["mean", "std"],
)
OF_ALL_MESSAGES: tuple[Any, ...] = ("mul", "median", ["mul", "mean"], ["median", "std", "mul"])
MASKS = (
    "torch.where(edge_attr[:, :1] > 0, {0}, {1})",
    "({0}) * (edge_attr[:, 1:2] <= 0.5)",
    "({0}).masked_fill(~(edge_attr[:, :1] >= -0.25) | (edge_attr[:, 1:2] == 0), 0.5)",
    "({0}) * edge_attr[:, :1].sign() + {1} * (edge_attr[:, 1:2] != 0).float()",
)
FILLS = (0.5, "mean", "add", "mul", "max", "min")
LOOPS = (*[()] * 6, ("add_self_loops",), ("add_remaining_self_loops",), ("remove_self_loops",),
    ("remove_self_loops", "add_self_loops"))  # fmt: skip
BY_DEGREES = """        row, col = edge_index
        deg = degree(col, x.size(0), dtype=x.dtype)
        root = deg.pow(-0.5)
        root[root == float("inf")] = 0"""
MOST_DEPTH = 3


class Drawing:
    """The source of one conv."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, Random(f"conv {seed}")
        self.parts: list[str] = []
        self.reads: tuple[str, ...] = self.rng.choice([(), (), ("weight",), ("attr",)])
        self.aggr: Any = self.rng.choice(AGGREGATORS)
        self.loops: tuple[str, ...] = Random(f"loops {seed}").choice(
            LOOPS
        )  # by a generator of its own: other seeds draw what they drew
        if self.reads and not self.loops and Random(f"both {seed}").random() < 0.3:
            self.reads = ("weight", "attr")
        self.by_degrees = bool(self.loops) and not self.reads and Random(f"degrees {seed}").random() < 0.3
        self.attends = self.rng.random() < 0.25
        if self.attends:
            self.aggr = "add"
        elif Random(f"made again {seed}").random() < 0.2:
            self.aggr = Random(f"made again of {seed}").choice(OF_ALL_MESSAGES)

    def part(self, made: str) -> str:
        """Return the name of a new part of the module."""
        self.parts.append(f"        self.part{len(self.parts)} = {made}")
        return f"self.part{len(self.parts) - 1}"

    def module(self, width: int = WIDTH) -> str:
        """Return the name of a new network of rows of this width."""
        return self.part(self.rng.choice(MODULES).format(width))

    def rows(self, leaves: list[str], depth: int) -> str:
        """Return an expression of rows of width 4 over some of such."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            return rng.choice(leaves)
        kind = rng.random()
        if kind < 0.35:
            return rng.choice(UNARY).format(self.rows(leaves, depth - 1))
        one, other = self.rows(leaves, depth - 1), self.rows(leaves, depth - 1)
        if kind < 0.7:
            return "(" + rng.choice(BINARY).format(one, other) + ")"
        if kind < 0.85:
            return f"{self.module(2 * WIDTH)}(torch.cat([{one}, {other}], dim=-1))"
        return f"{self.module()}({one})"

    def source(self) -> str:
        """Return the source of the module."""
        rng = self.rng
        message, given = self.message() if not self.by_degrees else self.scaled()
        before, passed = self.before(given)
        behind = self.behind()
        update = []
        if rng.random() < 0.3 and isinstance(self.aggr, str):
            update = ["    def update(self, aggr_out):", f"        return {self.rows(['aggr_out'], 1)}"]
        parameters = "".join(f", edge_{one}" for one in self.reads)
        forward = [f"    def forward(self, x, edge_index{parameters}):", *before]
        forward += [f"        out = self.propagate(edge_index, {', '.join(passed)})", *behind]
        return HEAD.format(aggr=self.aggr) + "\n".join([*self.parts, "", *forward, "", *message, "", *update, ""])

    def message(self) -> tuple[list[str], list[str]]:
        """Return the lines of message, and the names of rows that it reads."""
        rng = self.rng
        given = rng.sample(["a_i", "a_j", "b_i", "b_j"], rng.randint(1, 3))
        leaves, names = list(given), list(given)
        if "attr" in self.reads:
            names.append("edge_attr")
            leaves.append(f"{self.part(f'nn.Linear({EDGE_WIDTH}, 4)')}(edge_attr)")
        if self.attends:
            names.append("index")
        if "weight" in self.reads:
            names.append("edge_weight")
        body = self.rows(leaves, rng.randint(0, MOST_DEPTH))
        if "attr" in self.reads and leaves[-1] not in body:
            body = f"({body}) * {leaves[-1]}"
        if "attr" in self.reads and Random(f"masks {self.seed}").random() < 0.4:
            body = Random(f"mask {self.seed}").choice(MASKS).format(body, given[0])
        if "weight" in self.reads:
            body = rng.choice(["edge_weight.view(-1, 1) * ({})", "({}) * edge_weight.unsqueeze(-1)"]).format(body)
        lines = [f"    def message(self, {', '.join(names)}):"]
        if self.attends:
            heads = rng.choice([1, 2])
            att = self.part(f"nn.Parameter(torch.randn(1, {heads}, {WIDTH // heads}))")
            lines += [f"        alpha = ({self.rows(leaves, 2)}).view(-1, {heads}, {WIDTH // heads})"]
            lines += [f"        alpha = softmax(F.leaky_relu((alpha * {att}).sum(-1), 0.2), index)"]
            lines += [f"        return (({body}).view(-1, {heads}, {WIDTH // heads}) * alpha.unsqueeze(-1)).flatten(1)"]
        else:
            lines += [f"        return {body}"]
        return lines, names

    def scaled(self) -> tuple[list[str], list[str]]:
        """Return the lines of the message of PyG's tutorial, and the names of rows that it reads."""
        return ["    def message(self, a_j, norm):", "        return norm.view(-1, 1) * a_j"], ["a_j"]

    def changed(self) -> list[str]:
        """Return the lines that change edges, and what these carry."""
        name = f"edge_{self.reads[0]}" if self.reads else ""
        given, made = (f"edge_index, {name}", f"edge_index, {name}") if name else ("edge_index", "edge_index, _")
        fill = Random(f"fill {self.seed}").choice(FILLS) if self.reads[:1] == ("attr",) else 0.5
        more = f", fill_value={fill!r}" if name else ""
        return [
            f"        {made} = {one}({given}" + (")" if "remove" in one else f"{more}, num_nodes=x.size(0))")
            for one in self.loops
        ]

    def before(self, given: list[str]) -> tuple[list[str], list[str]]:
        """Return the lines before `propagate`, and what is handed to it."""
        rng, lines = self.rng, [*self.changed(), f"        h = {self.module(IN_WIDTH)}(x)"]
        passed = []
        for name in sorted({one[0] for one in given if one[1:] in ("_i", "_j")}):
            made = self.rows(["h"], rng.randint(0, 2))
            passed.append(f"{name}=({made}, h)" if rng.random() < 0.1 else f"{name}={made}")
        if "weight" in self.reads:
            if rng.random() < 0.4:
                lines += [
                    "        edge_index, edge_weight = gcn_norm(edge_index, edge_weight, x.size(0), False, False)"
                ]
            passed.append("edge_weight=edge_weight")
        if "attr" in self.reads:
            passed.append("edge_attr=edge_attr")
        if self.by_degrees:
            lines.append(BY_DEGREES)
            passed.append("norm=root[row] * root[col]")
        return lines, passed + rng.choice([[], ["size=None"], ["size=(x.size(0), x.size(0))"]])

    def behind(self) -> list[str]:
        """Return the lines behind `propagate`."""
        width = WIDTH * (len(self.aggr) if isinstance(self.aggr, list) else 1)
        lines = [f"        out = {self.module(width)}(out)"] if width > WIDTH or self.rng.random() < 0.3 else []
        made = self.rows(["out", "h", "out"], self.rng.randint(0, 2))
        reads_messages = re.search(r"\bout\b", made) is not None
        return [*lines, f"        return {made if reads_messages else f'out + {made}'}"]


class OfTwoKinds(Drawing):
    """The source of a conv that reads the rows of sources of one kind, and of targets of another."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.loops, self.by_degrees = (), False

    def before(self, given: list[str]) -> tuple[list[str], list[str]]:
        """Return the lines before `propagate`, and what is handed to it."""
        rng, widths = self.rng, (WIDTHS["author"], WIDTHS["paper"])
        lines = [f"        g, h = {self.module(widths[0])}(x[0]), {self.module(widths[1])}(x[1])"]
        passed = []
        for name in sorted({one[0] for one in given if one[1:] in ("_i", "_j")}):
            made = self.rows(["h"], rng.randint(0, 2))
            source = re.sub(r"\bh\b", "g", made)
            passed.append(f"{name}=({source}, {made})")
        passed += [f"{name}={name}" for name in ("edge_weight", "edge_attr") if name in given]
        return lines, passed + rng.choice([[], ["size=None"], ["size=(x[0].size(0), x[1].size(0))"]])


class OnRelations(torch.nn.Module):
    """A HeteroConv of a conv and a SAGEConv, which hands on what the conv reads of edges."""

    def __init__(self, conv: Any, reads: tuple[str, ...]) -> None:
        super().__init__()
        self.conv = HeteroConv({WRITES: conv, CITES: SAGEConv(WIDTHS["paper"], WIDTH)})
        self.reads = reads

    def forward(
        self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any = None, edge_attr_dict: Any = None
    ) -> Any:
        """Return the rows of papers."""
        of_edges = {"weight": edge_weight_dict, "attr": edge_attr_dict}
        given = {f"edge_{one}_dict": {WRITES: of_edges[one][WRITES]} for one in self.reads}
        return self.conv(x_dict, edge_index_dict, **given)["paper"]


def tried(seed: int, folder: Path, *, parts: int = 2, relations: bool = False) -> str:
    """Return the aggregate of one that was read and is right, or why it was refused.

    Raises: AssertionError where rows are wrong, where export found a difference, or where a refusal names no line.
    """
    drawn = (OfTwoKinds if relations else Drawing)(seed)
    name = f"drawn_{seed}"
    (folder / f"{name}.py").write_text(drawn.source())
    torch.manual_seed(seed)
    module = importlib.import_module(name).Drawn().eval()
    module = OnRelations(module, drawn.reads).eval() if relations else module
    given: dict[str, Any] = {"features": IN_WIDTH, "edge_features": EDGE_WIDTH if "attr" in drawn.reads else None}
    try:
        model = export_model(
            module, folder / name, **({"metadata": METADATA, "features": WIDTHS} if relations else given)
        )
    except ExportError as error:
        said = str(error)
        assert f"{name}.py:" in said, f"refused without a line: {said}"
        assert "differs from the module" not in said, said
        return "refused: " + re.sub(r"^.*drawn_\d+\.py:\d+: ", "", said).partition(". docs/")[0]
    what = "softmax" if drawn.attends and not drawn.by_degrees else str(drawn.aggr)
    what += f", {', '.join(drawn.loops)}" if drawn.loops else ""
    if isinstance(model, KindsModel):
        for number in range(seed, seed + parts):
            case = draw_kinds(number, given=model)
            case.judge(simulate(case, CutLog(), number, case.faults))
        return f"read: {what}"
    with_quantiles(module.double())

    def by_pyg(graph: Graph) -> np.ndarray:
        index = torch.from_numpy(np.stack([graph.src, graph.dst]).astype(np.int64))
        of_edges = {"attr": graph.values.full_attr(EDGE_WIDTH), "weight": graph.values.weight}
        given = [torch.tensor(of_edges[one], dtype=torch.float64) for one in drawn.reads]
        with torch.no_grad():
            made: np.ndarray = module(torch.tensor(graph.x, dtype=torch.float64), index, *given).numpy()
        return made

    for number in range(seed, seed + parts):
        crashes_of(model, number, by_pyg)
    return f"read: {what}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds (default: 1)")
    parser.add_argument("--show", action="store_true", help="print the source of each conv")
    parser.add_argument("--relations", action="store_true", help="convs that read the rows of two kinds")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found, wrong = Counter[str](), list[int]()
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for seed in range(options.seed, options.seed + options.count):
            if options.show:
                print((OfTwoKinds if options.relations else Drawing)(seed).source())
            try:
                found[tried(seed, Path(folder), relations=options.relations)] += 1
            except Exception as error:
                wrong.append(seed)
                print(f"seed {seed}: WRONG\n{''.join(traceback.format_exception(error, limit=-3))}", flush=True)
    for what, count in found.most_common():
        print(f"{count:5} {what}")
    print(f"{options.count} seeds, {len(wrong)} wrong: {' '.join(map(str, wrong))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
