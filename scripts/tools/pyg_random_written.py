"""Random modules as users write them: with weights, attributes and degrees, shared layers, loops and branches.

Its tables hold templates as those of scripts/tools/pyg_random_tables.py.
"""

from __future__ import annotations

from scripts.tools.pyg_random_programs import Drawn, Source
from scripts.tools.pyg_random_tables import READ, WIDTHS, Template

LAYERS: tuple[Template, ...] = (
    ("a = {h}\nfor _ in range(2):\n    a = `pyg.GCNConv({w}, {w})`(a, edge_index).relu()", "a", "{w}"),
    ("a = `pyg.SAGEConv({w}, {w})`; b = a({h}, edge_index).tanh()", "a(b, edge_index) + b", "{w}"),
    ("a = {h}\nfor conv, norm in zip(`ModuleList([pyg.SAGEConv({w}, {w}), pyg.GCNConv({w}, {w})])`, "
     "`ModuleList([nn.BatchNorm1d({w}), nn.LayerNorm({w})])`):\n    a = a + F.relu(norm(conv(a, edge_index)))",
     "a", "{w}"),
    ("a, b = [], {h}\nfor i, conv in enumerate(`ModuleList([pyg.GraphConv({w}, {w}) for _ in range(2)])`):\n"
     "    b = conv(b, edge_index)\n    if i < 1:\n        b = F.relu(b, inplace=True)\n    a.append(b)",
     "torch.cat(a, -1)", "2 * {w}"),
    ("a = `ModuleList([pyg.GATConv({w}, {k}, heads=2), pyg.SAGEConv({w}, {w})])`; b = [{h}]\nfor conv in a[:-1]:\n"
     "    b += [F.elu(conv(b[-1], edge_index))]", "a[-1](torch.stack(b).mean(0), edge_index)", "{w}"),
    ("a = `pyg.GCNConv({w}, {o})`({h}, edge_index, edge_weight)", "a", "{o}"),
    ("a = `pyg.GraphConv({w}, {o}, aggr='mean')`({h}, edge_index, edge_weight.sigmoid())", "a", "{o}"),
    ("a = torch.exp(-edge_weight / 2)", "`pyg.GCNConv({w}, {o}, add_self_loops=False)`({h}, edge_index, a)", "{o}"),
    ("a = edge_weight if edge_weight is not None else torch.ones(edge_index.size(1))",
     "`pyg.LEConv({w}, {o})`({h}, edge_index, a)", "{o}"),
    ("a = (edge_weight > 1).to({h}.dtype)", "`pyg.GraphConv({w}, {o})`({h}, edge_index, a)", "{o}"),
    ("a = torch.where(edge_weight > 0.5, edge_weight, 0.1)", "`pyg.GCNConv({w}, {o})`({h}, edge_index, a)", "{o}"),
    ("", "`pyg.TAGConv({w}, {o}, K=2)`({h}, edge_index, edge_weight).relu()", "{o}"),
    ("", "`pyg.ChebConv({w}, {o}, 2)`({h}, edge_index, edge_weight, lambda_max=2.0)", "{o}"),
    ("", "`pyg.GINEConv(nn.Linear({w}, {o}), edge_dim=3)`({h}, edge_index, edge_attr)", "{o}"),
    ("a = `Linear(3, 3)`(edge_attr).relu()", "`pyg.GATConv({w}, {o}, edge_dim=3)`({h}, edge_index, a)", "{o}"),
    ("a = torch.cat([edge_attr, edge_attr**2], -1)",
     "`pyg.GATv2Conv({w}, {o}, edge_dim=6)`({h}, edge_index, a)", "{o}"),
    ("a = torch.cat([edge_weight.view(-1, 1), edge_attr], 1)",
     "`pyg.TransformerConv({w}, {o}, edge_dim=4)`({h}, edge_index, a)", "{o}"),
    ("a = `Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))`(edge_attr).squeeze(-1).sigmoid()",
     "`pyg.GraphConv({w}, {o})`({h}, edge_index, edge_weight=a)", "{o}"),
    ("", "`pyg.NNConv({w}, {o}, nn.Linear(3, {w} * {o}), aggr='mean')`({h}, edge_index, edge_attr)", "{o}"),
    ("", "`pyg.CGConv({w}, dim=3)`({h}, edge_index, edge_attr)", "{w}"),
    ("", "`pyg.GMMConv({w}, {o}, dim=3, kernel_size=2)`({h}, edge_index, edge_attr)", "{o}"),
    ("a = (edge_attr[:, :1] > 0).float() * edge_attr",
     "`pyg.GENConv({w}, {o}, edge_dim=3)`({h}, edge_index, a)", "{o}"),
    ("a = degree(edge_index[1], {n0}).clamp(min=1)", "torch.cat([{h}, a.view(-1, 1), a.log().view(-1, 1)], 1)",
     "{w} + 2"),
    ("src, dst = edge_index; a = degree(dst, {n0}).pow(-0.5); a[a == float('inf')] = 0",
     "`pyg.GraphConv({w}, {o})`({h}, edge_index, a[src] * a[dst])", "{o}"),
    ("src, dst = edge_index; a = degree(dst, {n0}).clamp(min=1)",
     "`pyg.GraphConv({w}, {o})`({h}, edge_index, 1 / a[dst])", "{o}"),
    ("src, dst = edge_index; a = torch.zeros_like({h}); a.index_add_(0, dst, {h}[src])", "a + {h}", "{w}"),
    ("src, dst = edge_index; a = {h}.new_zeros({n0}, {w}).index_add(0, dst, {h}[src] * edge_weight.view(-1, 1))", "a",
     "{w}"),
    ("src, dst = edge_index", "scatter({h}[src], dst, dim=0, dim_size={n0}, reduce='mean')", "{w}"),
    ("src, dst = edge_index; a = {h}[src] - {h}[dst]",
     "scatter(a.relu(), dst, dim=0, dim_size={n0}, reduce='max')", "{w}"),
    ("src, dst = edge_index; a = softmax(F.leaky_relu(`Linear({w}, 1)`({h})[src] + `Linear({w}, 1)`({h})[dst]), dst, "
     "num_nodes={n0})", "scatter({h}[src] * a, dst, dim=0, dim_size={n0})", "{w}"),
    ("src, dst = edge_index; a = `Linear(2 * {w}, 1)`(torch.cat([{h}[dst], {h}[src]], -1)).sigmoid()",
     "scatter({h}[src] * a, dst, dim=0, dim_size={n0}, reduce='sum')", "{w}"),
    ("src, dst = edge_index; a = `Linear({w} + 3, {o})`(torch.cat([{h}[src], edge_attr], -1)).relu()",
     "scatter(a, dst, dim=0, dim_size={n0}, reduce='sum')", "{o}"),
    ("a = torch.sparse_coo_tensor(edge_index.flip(0), edge_weight, ({n0}, {n0}))", "a @ {h} + {h}", "{w}"),
    ("a, _ = add_self_loops(edge_index, num_nodes={n0})", "`pyg.SAGEConv({w}, {o})`({h}, a)", "{o}"),
    ("a, b = gcn_norm(edge_index, edge_weight, {n0})", "`pyg.GraphConv({w}, {o})`({h}, a, b)", "{o}"),
    ("a, b = gcn_norm(edge_index, num_nodes={n0}, add_self_loops=False)",
     "`pyg.GCNConv({w}, {o}, normalize=False)`({h}, a, b)", "{o}"),
    ("a, b = remove_self_loops(edge_index)", "`pyg.GINConv(nn.Linear({w}, {o}))`({h}, a)", "{o}"),
    ("", "`OwnOfAttributes({w}, {o})`({h}, edge_index, edge_attr)", "{o}"),
    ("", "`OwnNormed({w}, {o})`({h}, edge_index)", "{o}"),
    ("", "`OwnWeighted({w}, {o})`({h}, edge_index, edge_weight)", "{o}"),
    ("a = {h}", "`GRUCell({o}, {w})`(`pyg.GraphConv({w}, {o})`(a, edge_index), a)", "{w}"),
    ("a, b = {h}, torch.zeros_like({h})\nfor _ in range(2):\n"
     "    a, b = `LSTMCell({w}, {w})`(`pyg.GraphConv({w}, {w})`(a, edge_index), (a, b))", "a + b", "{w}"),
    ("a = {h}.view({n}, 2, {k}); b = a.mean(1)", "`pyg.SAGEConv({k}, {o})`(b, edge_index)", "{o}"),
    ("a = `pyg.GCN({w}, 4, num_layers=2, out_channels={o}, jk='cat')`({h}, edge_index)", "a", "{o}"),
    ("a = `pyg.Sequential('x, e', [(pyg.GCNConv({w}, 4), 'x, e -> h'), nn.ReLU(), (lambda x, h: torch.cat([x, h], 1), "
     "'x, h -> h')])`({h}, edge_index)", "a", "{w} + 4"),
)  # fmt: skip
AFTER: tuple[Template, ...] = (
    ("{h} += {h}.tanh()", "{h}", "{w}"),
    ("a = {h}\nif a.dim() == 1:\n    a = a.unsqueeze(-1)", "a", "{w}"),
    ("a = {h}\nif self.training:\n    a = a * 2", "a", "{w}"),
    ("a = {h}\nif hasattr(self, 'skip'):\n    a = a * 2", "a", "{w}"),
    ("a = F.dropout({h}, 0.3, self.training)", "F.relu(a, inplace=True)", "{w}"),
    ("a = {h} if {h}.size(-1) == {w} else {h}[:, :1]", "a", "{w}"),
    ("a = [{h}[:, i::2].sum(1, keepdim=True) for i in range(2)]", "torch.cat(a, dim=1)", "2"),
    ("a = {{'h': {h}, 'g': {g}}}", "sum(a.values()) + a['h']", "{w}"),
    ("assert {h}.dim() == 2", "{h} * 1", "{w}"),
    ("a = torch.softmax(`Parameter(torch.randn(2))`, 0)", "a[0] * {h} + a[1] * {g}", "{w}"),
    ("a = torch.empty({n0}, 2, {k}); a[:, 0] = {h}[:, :{k}]; a[:, 1] = {g}[:, {k}:]", "a.flatten(1)", "{w}"),
    ("a = {h}.clone(); a[:, :{k}] = 0", "a", "{w}"),
    ("a = {h}.clone(); a[:, {k}:] += {g}[:, :{k}]", "a", "{w}"),
)  # fmt: skip
HOSTILE_WRITTEN: tuple[Template, ...] = (
    ("a, b = [], {h}\nfor conv in `ModuleList([pyg.SAGEConv({w}, {w}) for _ in range(2)])`:\n"
     "    b = conv(b, edge_index)\n    a.append(b)\n    b = F.relu(b, inplace=True)", "torch.cat(a, -1)", "2 * {w}"),
    ("a = {h}; a += 1", "a + {g}", "{w}"),
    ("a = {h}.view({n}, 2, {k}); a[:, 0] = 0", "{h} + 0", "{w}"),
    ("a = edge_weight / edge_weight.max()", "`pyg.GCNConv({w}, {o})`({h}, edge_index, a)", "{o}"),
    ("a = edge_weight / (edge_weight.mean() + 1)", "`pyg.GraphConv({w}, {o})`({h}, edge_index, a)", "{o}"),
    ("a = torch.softmax(edge_weight, 0)", "`pyg.GraphConv({w}, {o})`({h}, edge_index, a)", "{o}"),
    ("a = edge_weight.flip(0)", "`pyg.GraphConv({w}, {o})`({h}, edge_index, a)", "{o}"),
    ("a = edge_attr - edge_attr.mean(0)", "`pyg.GINEConv(nn.Linear({w}, {o}), edge_dim=3)`({h}, edge_index, a)", "{o}"),
    ("a = F.normalize(edge_attr, dim=0)", "`pyg.GATConv({w}, {o}, edge_dim=3)`({h}, edge_index, a)", "{o}"),
    ("a = `BatchNorm1d(3, track_running_stats=False)`(edge_attr)",
     "`pyg.GATConv({w}, {o}, edge_dim=3)`({h}, edge_index, a)", "{o}"),
    ("a = degree(edge_index[1], {n0})", "{h} * (a / a.max()).view(-1, 1)", "{w}"),
    ("a = degree(edge_index[0], {n0})", "{h} * a.view(-1, 1)", "{w}"),
    ("a = degree(edge_index[1], {n0})", "{h} * (a > 3).view(-1, 1)", "{w}"),
    ("a = edge_index[:, edge_weight > 0.5]", "`pyg.SAGEConv({w}, {o})`({h}, a)", "{o}"),
    ("a = edge_index[:, ::2]", "`pyg.SAGEConv({w}, {o})`({h}, a)", "{o}"),
    ("a = edge_index[:, : edge_index.size(1) // 2]", "`pyg.SAGEConv({w}, {o})`({h}, a)", "{o}"),
    ("src, dst = edge_index; a = edge_index[:, src != dst]", "`pyg.SAGEConv({w}, {o})`({h}, a)", "{o}"),
    ("src, dst = edge_index; a = edge_index[:, src < dst]", "`pyg.SAGEConv({w}, {o})`({h}, a)", "{o}"),
    ("src, dst = edge_index", "scatter({h}[src], dst, dim=0, dim_size={n0}, reduce='mul')", "{w}"),
    ("src, dst = edge_index; a = softmax({h}[src], src, num_nodes={n0})",
     "scatter({h}[src] * a, dst, dim=0, dim_size={n0})", "{w}"),
    ("src, dst = edge_index; a = torch.softmax({h}[src], 0)", "scatter(a, dst, dim=0, dim_size={n0})", "{w}"),
    ("src, dst = edge_index", "scatter({h}[dst], src, dim=0, dim_size={n0})", "{w}"),
    ("src, dst = edge_index; a = {h}.clone(); a[dst] = {h}[src]", "a", "{w}"),
    ("src, dst = edge_index; a = {h}.clone(); a[dst] += {h}[src]", "a", "{w}"),
    ("a = torch.cat([edge_index, edge_index.flip(0)], 1)", "`pyg.SAGEConv({w}, {o})`({h}, a)", "{o}"),
    ("a = torch.zeros({n0}, {n0}); a[edge_index[1], edge_index[0]] = 1", "a @ {h}", "{w}"),
    ("a = torch.zeros({n0}, dtype=torch.bool); a[edge_index[1]] = True", "{h} * a.view(-1, 1)", "{w}"),
    ("a = {h} * 2\nif edge_weight.max() > 1.9:\n    a = {h}", "a", "{w}"),
    ("a = {h}\nif (edge_index[0] == edge_index[1]).any():\n    a = a + 1", "a", "{w}"),
    ("a = edge_index.unique(dim=1)", "`pyg.SAGEConv({w}, {o})`({h}, a)", "{o}"),
    ("", "`OwnCounting({w}, {o})`({h}, edge_index)", "{o}"),
    ("", "`OwnOrdered({w}, {o})`({h}, edge_index, edge_weight)", "{o}"),
)  # fmt: skip
_OWN = """
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, degree, remove_self_loops, scatter, softmax


class OwnOfAttributes(pyg.MessagePassing):
    def __init__(self, into, out):
        super().__init__(aggr="{aggr}")
        self.lin, self.edge = nn.Linear(into, out), nn.Linear(3, out)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=self.lin(x), e=self.edge(edge_attr))

    def message(self, x_j, e):
        return {attributed}

    def update(self, made, x):
        return F.relu(made) + x


class OwnNormed(pyg.MessagePassing):
    def __init__(self, into, out):
        super().__init__(aggr="add")
        self.lin, self.bias = nn.Linear(into, out, bias=False), nn.Parameter(torch.zeros(out))

    def forward(self, x, edge_index):
        {loops}
        row, col = edge_index
        deg = degree({end}, x.size(0), dtype=x.dtype)
        root = deg.pow(-0.5)
        root[root == float("inf")] = 0
        return self.propagate(edge_index, x=self.lin(x), norm=root[row] * root[col]) + self.bias

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class OwnWeighted(pyg.MessagePassing):
    def __init__(self, into, out):
        super().__init__(aggr="{aggr}", flow="source_to_target")
        self.lin, self.att = nn.Linear(into, out), nn.Parameter(torch.randn(1, 2 * out))

    def forward(self, x, edge_index, edge_weight=None):
        h = self.lin(x)
        return self.propagate(edge_index, x=h, edge_weight=edge_weight, size=None) + h

    def message(self, x_i, x_j, edge_weight, index, ptr, size_i):
        alpha = softmax(F.leaky_relu((torch.cat([x_i, x_j], -1) * self.att).sum(-1)), index, ptr, size_i)
        made = x_j * alpha.unsqueeze(-1)
        return made if edge_weight is None else made * edge_weight.view(-1, 1)


class OwnCounting(pyg.MessagePassing):
    def __init__(self, into, out):
        super().__init__(aggr="add")
        self.lin = nn.Linear(into, out)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_j, index):
        return {counting}


class OwnOrdered(pyg.MessagePassing):
    def __init__(self, into, out):
        super().__init__(aggr="add")
        self.lin = nn.Linear(into, out)

    def forward(self, x, edge_index, edge_weight):
        return self.propagate(edge_index, x=self.lin(x), edge_weight=edge_weight)

    def message(self, x_j, edge_weight):
        return {ordered}


class Drawn("""
_ATTRIBUTED = ("(x_j + e).relu()", "x_j * torch.sigmoid(e)", "torch.cat([x_j, e], -1)[:, ::2]", "x_j * (e > 0)",
               "x_j / (1 + e.abs())")  # fmt: skip
_LOOPS = ("pass", "edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))")
_COUNTING = ("x_j * len(x_j)", "x_j / index.max()", "x_j * torch.arange(len(x_j)).view(-1, 1)", "x_j - x_j.mean(0)",
             "x_j * (index < 3000).view(-1, 1)")  # fmt: skip
_ORDERED = ("x_j * edge_weight.cumsum(0).view(-1, 1)", "x_j * edge_weight.sort()[0].view(-1, 1)",
            "x_j * (edge_weight / edge_weight.sum()).view(-1, 1)", "x_j * edge_weight.roll(1).view(-1, 1)",
            "x_j.roll(1, 0)")  # fmt: skip
_SETS = ("SAGEConv({w}, {o})", "GCNConv({w}, {o})", "GATConv({w}, {o})", "GraphConv({w}, {o}, aggr='max')",
         "GINConv(nn.Linear({w}, {o}))")  # fmt: skip


def draw_written(seed: int, hostile: float) -> Source:
    """Return a random module's source as users write it."""
    drawn = Drawn(seed)
    if drawn.rng.random() < 0.15:
        return _draw_sets(drawn, hostile)
    h, drawn.turned = "x", False
    for _ in range(drawn.rng.choice((1, 2, 2, 3))):
        is_hostile = drawn.rng.random() < hostile
        h = drawn.function(h, HOSTILE_WRITTEN if is_hostile else LAYERS)
        drawn.hostile += [drawn.lines[-1]] * is_hostile
        for _ in range(drawn.rng.randint(0, 2)):
            h = drawn.function(h, AFTER if drawn.rng.random() < 0.5 else READ)
    body = "\n".join([*drawn.lines, *drawn.parts])
    takes = ["x", "edge_index"]
    if "edge_weight" in body or "OwnWeighted" in body:
        takes.append("edge_weight=None" if drawn.rng.random() < 0.3 else "edge_weight")
    if "edge_attr" in body:
        takes.append("edge_attr=None" if takes[-1].endswith("=None") or drawn.rng.random() < 0.2 else "edge_attr")
    named = [one.split("=")[0] for one in takes]
    first, call = "", f"module({', '.join(f'{one}={one}' for one in named)})"
    if drawn.rng.random() < 0.15:
        first = "\n        ".join(f"{one} = data.{one}" for one in named)
        takes, call = ["data"], f"module(Data({', '.join(f'{one}={one}' for one in named)}))"
    drawn.rng.shuffle(drawn.hostile)
    options = "dict(features=4, edge_features=3)" if "edge_attr" in named else "dict(features=4)"
    text = _own_of(drawn, drawn.text(", ".join(takes), h, "made", first))
    return Source(text, call, tuple(drawn.hostile), options, "written")


def _own_of(drawn: Drawn, text: str) -> str:
    chosen = {
        "aggr": drawn.rng.choice(("sum", "mean", "max")), "attributed": drawn.rng.choice(_ATTRIBUTED),
        "loops": drawn.rng.choice(_LOOPS), "end": drawn.rng.choice(("col", "col", "row")),
        "counting": drawn.rng.choice(_COUNTING), "ordered": drawn.rng.choice(_ORDERED),
    }  # fmt: skip
    own = _OWN
    for name, one in chosen.items():
        own = own.replace(f"{{{name}}}", one)
    return text.replace("\nclass Drawn(", own, 1)


def _draw_sets(drawn: Drawn, hostile: float) -> Source:
    """Return the source of a module of two or three sets of edges between the vertices of one kind."""
    names = drawn.rng.sample(("pos", "neg", "near"), drawn.rng.choice((2, 2, 3)))
    h, drawn.turned = "x", False
    for _ in range(drawn.rng.choice((1, 2))):
        width, out = drawn.rows[h], drawn.rng.choice(WIDTHS)
        chosen = drawn.rng.sample(names, drawn.rng.randint(1, len(names)))
        parts = [drawn.part("pyg." + drawn.rng.choice(_SETS).format(w=width, o=out)) for _ in chosen]
        edges = [f"{one}_edge_index" for one in chosen]
        if drawn.rng.random() < hostile:
            edges[0] += drawn.rng.choice((".flip(0)", "[:, ::2]", "[:, :9000]"))
            drawn.hostile.append(edges[0])
        made = [f"{part}({h}, {one})" for part, one in zip(parts, edges, strict=True)]
        if drawn.rng.random() < 0.5:
            h = drawn.let(f"torch.cat([{', '.join(made)}], dim=-1)", out * len(made))
        else:
            h = drawn.let(" + ".join(made), out)
        h = drawn.rows_of(h, 2, hostile)
    takes = ", ".join(["x", *(f"{one}_edge_index" for one in names)])
    relations = [("vertex", one, "vertex") for one in names]
    text = _own_of(drawn, drawn.text(takes, h, "made"))
    return Source(text, f"module({takes})", tuple(drawn.hostile), "dict(features=4)", "sets", {"vertex": 4}, relations)
