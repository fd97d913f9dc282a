"""Sources of random convs that branch on, slice by, count or compute with sizes of the graph, as users write them."""

from __future__ import annotations

from random import Random

HEAD = '''"""Drawn: a conv whose forward asks for sizes."""
import numpy as np
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GraphConv, MessagePassing, SAGEConv
from torch_geometric.utils import scatter, softmax

WIDTH = 4


'''
PLACES = ("plain", "weight", "attr", "pair", "subclass", "message", "update", "aggregate")
THRESHOLDS = (1, 2, 3, 5, 20, 100, 300, 1000, 2500)
_VERTICES = {
    "plain": ("x.size(0)", "x.shape[0]", "len(x)", "h.size(0)", "x.numel()", "x.size()[0]", "torch.numel(h)"),
    "pair": ("x[0].size(0)", "x[1].size(0)", "len(x[0])", "x[1].shape[0]", "(x[0].size(0) + x[1].size(0))"),
    "message": ("x_j.size(0)", "index.numel()", "len(x_j)", "index.shape[0]", "dim_size", "x_j.numel()"),
    "update": ("aggr_out.size(0)", "len(aggr_out)", "aggr_out.numel()", "dim_size"),
    "aggregate": ("inputs.size(0)", "dim_size", "index.numel()", "len(inputs)"),
}
_EDGES = (
    "edge_index.numel()",
    "edge_index.size(1)",
    "edge_index.shape[1]",
    "len(edge_index[0])",
    "edge_index[1].size(0)",
)
_CONDITIONS = ("{n} < {t}", "{n} > {t}", "{n} >= {t}", "{n} == {t}", "{n} != {t}", "{t} < {n} < 4 * {t}", "{n} <= {t}",
    "not {n} > {t}", "{n} in (7, {t})", "{n} - {t} > 0", "{n} * 2 > {t}", "bool({n} > {t})")  # fmt: skip
_OTHER = ("{h} * 2", "-{h}", "self.other({h})", "{h} + 1", "torch.zeros_like({h})", "{h}.relu()")
_NUMBERS = ("{h} * min({n}, {t}) / {t}", "{h} / max({n}, {t})", "{h} * ({n} > {t})", "{h} * float({n} < {t})",
    "{h} / {n}", "{h} + 1 / (1 + {n} // {t})", "{h} * torch.tensor({n}).clamp(max={t}) / {t}",
    "{h} * (torch.ones({n}).sum() > {t})", "{h} * (1 + {n} % 2)", "{h} * int({n} > {t})",
    "{h} * torch.full((1,), {n}).clamp(max={t})", "{h} * (1 + len(range(min({n}, {t}))))")  # fmt: skip
_LAYERS = ("[self.lin2, self.other][{n} > {t}]({h})", "(self.other if {c} else self.lin2)({h})",
    "self.lins[int({n} > {t})]({h})", "self.lins[min({n}, 1)]({h})")  # fmt: skip
_SLICES = ("x[:{t}]", "x[: len(edge_index[0])]", "x.split({t})[0]", "x[-{t}:]",
    "torch.narrow(x, 0, 0, min(len(x), {t}))", "x.tensor_split([{t}])[0]", "x[: 10 * x.size(0)]")  # fmt: skip
_EDGE_SLICES = ("edge_index[:, :{t}]", "edge_index[:, : x.numel()]", "edge_index[:, : min(edge_index.size(1), {t})]")
_OUT_OF_TORCH = ("np.bincount(edge_index[1].numpy(), minlength=1).max() > {t}", "max(map(max, x.tolist())) > {t}",
    "torch.bincount(edge_index[1], minlength=1).max() > {t}", "edge_index.max() > {t}", "np.asarray(x).shape[0] > {t}",
    "(edge_index[1] == 0).sum().item() > {t}", "len(x.tolist()) > {t}")  # fmt: skip
_COUNTERS = ("self.calls", "self.state['calls']", "type(self).total", "self.seen[0]", "self.buffer")


class SizedConv:
    """The source of one conv, whose class is Drawn: `where` it asks for a size, and `what` it does with it.

    harmless: whether it gives the same at any size, so that it is to be taken; relation: whether it reads a pair.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"sizes {seed}")
        self.where = self.rng.choice(PLACES)
        self.harmless = False
        self.relation = self.where == "pair"
        self.threshold = self.rng.choice(THRESHOLDS)
        self.inside = not self.relation and self.rng.random() < 0.25
        uses = ["branch", "guard", "number", "layer", "legal"]
        if self.where in ("plain", "weight", "attr"):
            uses += ["slice", "out of torch", "loop", "counter", "guard"]
        if self.where == "subclass":
            uses = ["guard", "branch", "guard", "legal", "number"]
        self.what = self.rng.choice(uses)
        self.source = self._source()

    def size(self) -> str:
        """Return an expression of a size."""
        rng = self.rng
        if self.where in ("message", "update", "aggregate", "pair"):
            sizes = (*_VERTICES[self.where], *(_EDGES if self.where == "pair" else ()))
            return rng.choice(sizes)
        of_edges = {"weight": "edge_weight.numel()", "attr": "edge_attr.size(0)"}.get(self.where)
        return rng.choice([*_VERTICES["plain"], *_EDGES, *([of_edges] * 4 if of_edges else [])])

    def condition(self) -> str:
        """Return a condition on a size that graphs with edges turn."""
        return self.rng.choice(_CONDITIONS).format(n=self.size(), t=self.threshold)

    def no_edges(self) -> str:
        """Return a condition that holds without edges, and never with some."""
        rows = {"pair": _EDGES, "message": ("x_j.size(0)", "index.numel()"), "aggregate": ("index.numel()",)}
        n = self.rng.choice(rows.get(self.where, (*_EDGES, *(["edge_weight.numel()"] * (self.where == "weight")))))
        return self.rng.choice(["{} == 0", "not {}", "{} < 1", "{} <= 0", "0 == {}"]).format(n)

    def changed(self, h: str) -> list[str]:
        """Return the lines that make other rows of `h` by a size."""
        rng, what = self.rng, self.what
        if what == "number":
            return [f"{h} = {rng.choice(_NUMBERS).format(h=h, n=self.size(), t=self.threshold)}"]
        if what == "layer":
            made = rng.choice(_LAYERS).format(h=h, n=self.size(), t=self.threshold, c=self.condition())
            return [f"{h} = {made}"]
        if what == "loop":
            return [f"for _ in range(min({self.size()}, {self.threshold})):", f"    {h} = {h} * 0.5"]
        if what == "out of torch":
            return [f"{h} = {h} * 2 if {rng.choice(_OUT_OF_TORCH).format(t=self.threshold)} else {h}"]
        if what == "counter":
            name = rng.choice(_COUNTERS)
            self.harmless = rng.random() < 0.3
            return [
                f"{name} += 1",
                *([] if self.harmless else [f"{h} = {h} * 2 if {name} > {self.threshold} else {h}"]),
            ]
        if what == "branch":
            self.harmless = rng.random() < 0.3
            other = f"{h} * 1" if self.harmless else rng.choice(_OTHER).format(h=h)
            if rng.random() < 0.5:
                return [f"{h} = {other} if {self.condition()} else {h}"]
            return [f"if {self.condition()}:", f"    {h} = {other}"]
        self.harmless = True
        return [f"assert {h}.size(0) == {h}.shape[0] and {h}.size(-1) == WIDTH"]

    def guarded(self, given: str, zeros: str) -> list[str]:
        """Return the lines of a guard before the messages: without edges what it returns is right, or not."""
        self.harmless = self.rng.random() < 0.6
        if self.harmless:
            return [f"if {self.no_edges()}:", f"    return {zeros}"]
        return [f"if {self.no_edges() if self.rng.random() < 0.6 else self.condition()}:", f"    return {given}"]

    def _source(self) -> str:
        body = {"pair": self._pair, "subclass": self._subclass}.get(self.where, self._own)()
        edge = {"weight": ", edge_weight", "attr": ", edge_attr"}.get(self.where, "")
        return HEAD + body + (INSIDE.replace("{edge}", edge) if self.inside else "\n\nDrawn = Sized\n")

    def _made(self, reads: str = "") -> list[str]:
        parts = ["lin", "lin2", "other"]
        return [
            "class Sized(MessagePassing):",
            "    total = 0",
            "    def __init__(self):",
            f"        super().__init__(aggr={self.rng.choice(['add', 'mean', 'max'])!r}, node_dim=0)",
            *(f"        self.{one} = nn.Linear(WIDTH, WIDTH, bias=False)" for one in parts),
            "        self.lins = nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)])",
            "        self.calls, self.state, self.seen = 0, {'calls': 0}, [0]",
            "        self.register_buffer('buffer', torch.zeros(()))",
        ]

    def _own(self) -> str:
        edge = {"weight": ", edge_weight", "attr": ", edge_attr"}.get(self.where, "")
        size = self.rng.choice(["", ", size=(x.size(0), x.size(0))", ", size=None"])
        lines = [*self._made(), f"    def forward(self, x, edge_index{edge}):"]
        inner = ["h = self.lin(x)"]
        given = "x"
        if self.where in ("plain", "weight", "attr"):
            if self.what == "guard":
                zeros = self.rng.choice(
                    ["torch.zeros_like(self.lin(x))", "x.new_zeros(x.size(0), WIDTH)", "self.lin(x) * 0"]
                )
                inner += self.guarded(self.rng.choice(["x", "h", "h + 1"]), zeros)
            elif self.what == "slice":
                if self.rng.random() < 0.6:
                    given = self.rng.choice(_SLICES).format(t=self.threshold)
                    inner = [f"h = self.lin({given})"]
                else:
                    inner += [f"edge_index = {self.rng.choice(_EDGE_SLICES).format(t=self.threshold)}"]
                self.harmless = False
        inner += [f"h = self.propagate(edge_index, x=h{edge}{edge.replace(', ', '=')}{size})"]
        if self.where in ("plain", "weight", "attr") and self.what not in ("guard", "slice"):
            inner += self.changed("h")
        lines += [f"        {one}" for one in [*inner, "return h"]]
        lines += ["    def message(self, x_j, index, dim_size" + edge + "):"]
        inner = {
            "weight": ["x_j = x_j * edge_weight.view(-1, 1)"],
            "attr": ["x_j = x_j * edge_attr.sum(-1, True)"],
        }.get(self.where, [])
        if self.where == "message":
            inner += self.guarded("x_j * 2", "x_j") if self.what == "guard" else self.changed("x_j")
        lines += [f"        {one}" for one in [*inner, "return x_j"]]
        if self.where == "update":
            lines += ["    def update(self, aggr_out, dim_size):"]
            what = self.changed("aggr_out") if self.what != "guard" else [
                f"aggr_out = aggr_out * 3 if {self.condition()} else aggr_out"]  # fmt: skip
            lines += [f"        {one}" for one in [*what, "return aggr_out"]]
        if self.where == "aggregate":
            lines += ["    def aggregate(self, inputs, index, dim_size):"]
            zeros = "inputs.new_zeros(dim_size, WIDTH)"
            what = (
                self.guarded("inputs.new_ones(dim_size, WIDTH)", zeros)
                if self.what == "guard"
                else self.changed("inputs")
            )
            end = "return scatter(inputs, index, dim=0, dim_size=dim_size, reduce='sum')"
            lines += [f"        {one}" for one in [*what, end]]
        return "\n".join(lines) + "\n"

    def _pair(self) -> str:
        inner = ["h = self.lin(x[0])"]
        if self.what == "guard":
            inner += self.guarded("x[1]", "x[1].new_zeros(x[1].size(0), WIDTH)")
        size = self.rng.choice(["", ", size=(x[0].size(0), x[1].size(0))"])
        inner += [f"h = self.propagate(edge_index, x=(h, self.other(x[1])){size})"]
        inner += [] if self.what == "guard" else self.changed("h")
        lines = [
            *self._made(),
            "    def forward(self, x, edge_index):",
            *(f"        {one}" for one in [*inner, "return h"]),
        ]
        return "\n".join([*lines, "    def message(self, x_j):", "        return x_j * 0.5"]) + "\n"

    def _subclass(self) -> str:
        base = self.rng.choice(["GCNConv", "GATConv", "SAGEConv", "GraphConv"])
        run = "super().forward(x, edge_index)"
        if self.what == "guard":
            n = self.no_edges()
            lines = [f"        return {run} if not ({n}) else x"]
            self.harmless = False
        else:
            changed = [f"        {one}" for one in self.changed("h")]
            lines = [f"        h = {run}", *changed, "        return h"]
        return "\n".join([
            f"class Sized({base}):",
            "    total = 0",
            "    def __init__(self):",
            "        super().__init__(WIDTH, WIDTH)",
            "        self.other, self.lin2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)",
            "        self.lins = nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)])",
            "    def forward(self, x, edge_index):",
            *lines,
        ]) + "\n"  # fmt: skip


INSIDE = """

class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.sized, self.last = GraphConv(WIDTH, WIDTH), Sized(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, edge_index{edge}):
        h = self.first(x, edge_index).tanh()
        return self.last(self.sized(h, edge_index{edge}))
"""
