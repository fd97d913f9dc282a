"""Random torch modules as source text: convs of PyG, and between them functions of rows as users write them.

What a program of rows is made of stands in tables of templates: statements, the result, and its width. In them {h} and
{g} are rows of width {w} (an even number), {k} is half of it, {o} a width that is drawn, and {n} a way to write the
number of vertices. What stands between two backticks is made once, in __init__.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

FEATURES = 4
WIDTHS = (2, 4, 6, 8, 12, 14)
SIZES = ("x.size(0)", "x.shape[0]", "len(x)", "{h}.size(0)", "x.size()[0]", "-1")


class Source(NamedTuple):
    """A module's source. call: how it is called. hostile: what is in it that most models may not have."""

    text: str
    call: str
    hostile: tuple[str, ...] = ()


CONVS = (
    "GCNConv({w}, {o})", "GCNConv({w}, {o}, bias=False, add_self_loops=False)", "GCNConv({w}, {o}, improved=True)",
    "SAGEConv({w}, {o})", "SAGEConv({w}, {o}, aggr='max')", "SAGEConv({w}, {o}, normalize=True, bias=False)",
    "SAGEConv({w}, {o}, root_weight=False, bias=False)", "SAGEConv({w}, {o}, aggr='sum')",
    "GraphConv({w}, {o})", "GraphConv({w}, {o}, aggr='mean')", "GraphConv({w}, {o}, aggr='max', bias=False)",
    "GINConv(nn.Sequential(nn.Linear({w}, {o}), nn.ReLU(), nn.Linear({o}, {o})), train_eps=True)",
    "GATConv({w}, {o} // 2, heads=2)", "GATConv({w}, {o}, heads=2, concat=False, add_self_loops=False)",
    "GATv2Conv({w}, {o} // 2, heads=2)", "GATv2Conv({w}, {o}, share_weights=True, residual=True)",
    "TransformerConv({w}, {o} // 2, heads=2)", "TransformerConv({w}, {o}, beta=True)",
    "TAGConv({w}, {o}, K=2)", "SGConv({w}, {o}, K=2)", "ChebConv({w}, {o}, K=2)",
    "EdgeConv(nn.Sequential(nn.Linear(2 * {w}, {o}), nn.ReLU()))", "LEConv({w}, {o})", "ClusterGCNConv({w}, {o})",
    "ResGatedGraphConv({w}, {o})", "Own({w}, {o})", "ARMAConv({w}, {o})",
)  # fmt: skip
SAME_WIDTH = (
    "APPNP(K=2, alpha=0.1)", "LGConv()", "SimpleConv(aggr='mean')", "SimpleConv(aggr='max', combine_root='sum')",
    "GatedGraphConv({w}, 2)", "AGNNConv()",
)  # fmt: skip
OWN_CONVS = (
    "return torch.relu(self.lin(x_j) - x_i.sum(-1, keepdim=True))",
    "return self.lin(torch.tanh(x_j * x_i))",
    "return self.lin(x_j) / (1 + (x_i - x_j).norm(dim=-1, keepdim=True))",
    "return self.lin(x_j.view(x_j.size(0), 2, -1).flip(1).flatten(1))",
    "a, b = x_j.chunk(2, -1); return self.lin(torch.cat([a * b, b.exp().clamp(max=3)], -1))",
)

Template = tuple[str, str, str]
READ: tuple[Template, ...] = (
    ("", "torch.relu({h})", "{w}"),
    ("", "`Linear({w}, {o})`({h})", "{o}"),
    ("", "`Sequential(nn.Linear({w}, {o}), nn.BatchNorm1d({o}), nn.ReLU(inplace=True))`({h})", "{o}"),
    ("", "`LayerNorm({w})`({h})", "{w}"),
    ("a, b = {h}.chunk(2, dim=-1)", "torch.cat([a * b, b - a], dim=-1)", "{w}"),
    ("a, b = {h}.split({k}, dim=1)", "torch.sigmoid(a) * b", "{k}"),
    ("a, b = torch.split({h}, [{w} - 1, 1], dim=-1)", "a * b", "{w} - 1"),
    ("a = {h}.view({n}, 2, {k})", "a.mean(dim=1)", "{k}"),
    ("a = {h}.reshape({n}, {k}, 2)", "a.max(dim=-1).values + a.min(dim=-1)[0]", "{k}"),
    ("a = {h}.view({n}, 2, {k})", "(a * a.sum(-1, keepdim=True).softmax(1)).sum(1)", "{k}"),
    ("a = {h}.view({n}, 2, {k})", "torch.softmax(a, dim=2).flatten(1)", "{w}"),
    ("a = {h}.view({n}, 2, {k}).transpose(1, 2)", "a.reshape({n0}, -1)", "{w}"),
    ("a = {h}.unsqueeze(1)", "(a * {h}.view({n}, 2, {k}).repeat(1, 1, 2)).sum(1)", "{w}"),
    ("a = {h}.unsqueeze(-1).squeeze(-1)", "a * `Linear({w}, 1)`({h}).tanh()", "{w}"),
    ("", "{h} * `Parameter(torch.randn({w}))`", "{w}"),
    ("", "{h}.view({n}, 2, {k}).mul(`Parameter(torch.randn(1, 2, {k}))`).view({n}, {w})", "{w}"),
    ("", "torch.einsum('nhd,hdk->nk', {h}.view({n}, 2, {k}), `Parameter(torch.randn(2, {k}, {o}))`)", "{o}"),
    ("", "torch.einsum('nd,nd->n', {h}, {g}).unsqueeze(1) * {h}", "{w}"),
    ("", "torch.addmm(`Parameter(torch.randn({o}))`, {h}, `Parameter(torch.randn({w}, {o}))`)", "{o}"),
    ("", "torch.bmm({h}.view({n}, 1, {w}), {g}.view({n}, {w}, 1)).view({n}, 1) + {h}", "{w}"),
    ("a = torch.bmm({h}.view({n}, {k}, 2), {h}.view({n}, 2, {k}))", "a.softmax(-1).mean(1)", "{k}"),
    ("", "`GRUCell({w}, {w})`({h}, {g})", "{w}"),
    ("", "`GRUCell({w}, {o})`({h})", "{o}"),
    ("a, b = `LSTMCell({w}, {o})`({h})", "a + b", "{o}"),
    ("a, _ = `LSTM({w}, {o}, batch_first=True)`(torch.stack([{h}, {g}], dim=1))", "a[:, -1]", "{o}"),
    ("a, _ = `GRU({w}, {o}, 2, dropout=0.3)`(torch.stack([{h}, {g}]))", "a.mean(0)", "{o}"),
    ("a, b = `GRU({w}, {k}, bidirectional=True)`(torch.stack([{h}, {g}], 0))", "b.sum(0)", "{k}"),
    ("", "torch.stack([{h}, {g}, {h} * {g}], dim=-1).amax(dim=-1)", "{w}"),
    ("", "torch.stack([{h}, {g}]).mean(0)", "{w}"),
    ("", "torch.cat([{h}, {g}], 1)", "2 * {w}"),
    ("", "torch.exp(-{h}.abs())", "{w}"),
    ("", "torch.log1p({h} ** 2) + torch.sqrt({h}.abs())", "{w}"),
    ("", "{h} / {h}.norm(dim=-1, keepdim=True)", "{w}"),
    ("", "{h} / ({h}.norm(p=2, dim=1, keepdim=True) + 1e-6)", "{w}"),
    ("", "F.normalize({h}, dim=-1)", "{w}"),
    ("", "F.normalize({h}.view({n}, 2, {k}), p=2, dim=2).view({n0}, -1)", "{w}"),
    ("", "torch.relu({h}).log()", "{w}"),
    ("", "1 / {h}", "{w}"),
    ("", "{h} / {h}.sum(-1, keepdim=True)", "{w}"),
    ("", "{h}.relu() / {h}.relu()", "{w}"),
    ("", "({h} - {h}.mean(-1, keepdim=True)) / {h}.std(-1, keepdim=True)", "{w}"),
    ("", "{h}.relu().pow(0.5) + {h}.abs().pow(1.5)", "{w}"),
    ("", "{h} ** 0", "{w}"),
    ("", "{h} ** 0.3", "{w}"),
    ("", "{h}.pow(-1)", "{w}"),
    ("", "torch.logsumexp({h}.view({n}, 2, {k}), 1)", "{k}"),
    ("", "{h}.view({n}, 2, {k}).prod(1)", "{k}"),
    ("", "torch.log_softmax({h}, dim=-1)", "{w}"),
    ("", "F.softmin({h}, dim=1)", "{w}"),
    ("", "torch.logaddexp({h}, {g}.log())", "{w}"),
    ("", "torch.hypot({h}, {g})", "{w}"),
    ("", "torch.lerp({h}, {g}, 0.3)", "{w}"),
    ("", "torch.maximum({h}, {g}) - torch.minimum({h}, torch.tensor(0.5))", "{w}"),
    ("", "{h}.clamp(-1, 2)", "{w}"),
    ("", "{h}.var(dim=1, keepdim=True) * {h}", "{w}"),
    ("", "{h}.cumsum(-1)", "{w}"),
    ("", "F.glu({h})", "{k}"),
    ("", "F.gelu({h}) + F.silu({h}) + F.elu({h})", "{w}"),
    ("", "F.dropout({h}, p=0.5, training=self.training)", "{w}"),
    ("", "F.pad({h}, (1, 1))", "{w} + 2"),
    ("", "{h}[:, ::2]", "{k}"),
    ("", "{h}[:, [1, 0]]", "2"),
    ("", "{h}[..., -1:] * {h}", "{w}"),
    ("", "{h}.flip(1)", "{w}"),
    ("", "{h}.roll(1, -1)", "{w}"),
    ("", "{h}.t().contiguous().t()", "{w}"),
    ("", "torch.outer(torch.ones({n0}), `Parameter(torch.randn({w}))`) * {h}", "{w}"),
    ("", "(`Parameter(torch.randn({o}, {w}))` @ {h}.t()).t()", "{o}"),
    ("", "`Bilinear({w}, {w}, {o})`({h}, {g})", "{o}"),
    ("", "`MultiheadAttention({w}, 2, batch_first=True)`(*[torch.stack([{h}, {g}], 1)] * 3)[0].mean(1)", "{w}"),
    ("", "`Conv1d(1, 2, 1)`({h}.unsqueeze(1)).flatten(1)", "2 * {w}"),
    ("a = {h}.clone(); a.relu_()", "a + {h}", "{w}"),
    ("a = {h} * 2; a += {g}; a.add_(1)", "a", "{w}"),
    ("a = torch.zeros_like({h}); a = a + {h}", "a", "{w}"),
    ("a = {h}.new_zeros({n0}, {k})", "torch.cat([{h}, a + 1], -1)", "{w} + {k}"),
    ("a = torch.zeros({n0}, 2, {k}) + {h}.view({n}, 2, {k})", "a.sum(-2)", "{k}"),
    ("a = `Linear({w}, {w})`; b = a({h})", "b + a(torch.tanh(b))", "{w}"),
    ("a = 2.0 if self.training else 0.5", "{h} * a", "{w}"),
    ("a = {h}.unsqueeze(0) if {h}.dim() == 2 else {h}", "a.squeeze(0)", "{w}"),
    ("a = {h}.double().float()", "a", "{w}"),
    ("a = {h}.half().float()", "a", "{w}"),
    ("a = [{h}]\nfor i in range(2):\n    a.append(torch.tanh(a[-1]) * i)", "sum(a)", "{w}"),
    ("a = {h}.detach(); a = a.to({h}.device)", "a", "{w}"),
    ("", "pyg.JumpingKnowledge('max')([{h}, {g}])", "{w}"),
    ("", "`JumpingKnowledge('lstm', {w}, 2)`([{h}, {g}])", "{w}"),
    ("", "`JumpingKnowledge('cat')`([{h}, {g}])", "2 * {w}"),
    ("", "{h}.unflatten(1, (2, {k})).sum(1)", "{k}"),
    ("", "torch.tensordot({h}, `Parameter(torch.randn({w}, {o}))`, dims=1)", "{o}"),
    ("", "torch.cat([{h}.sum(1, keepdim=True), {h}.mean(1)[:, None]], 1)", "2"),
    ("a = {h}.view({n}, 2, {k}); b = {g}.view({n}, 2, {k})", "torch.matmul(a, b.transpose(1, 2)).flatten(1)", "4"),
    ("a = {h}.isnan()", "{h} + 0", "{w}"),
    ("", "torch.nan_to_num({h})", "{w}"),
    ("", "torch.atan({h})", "{w}"),
    ("", "torch.sin({h})", "{w}"),
    ("", "F.softplus({h}, beta=2, threshold=1)", "{w}"),
    ("", "F.hardtanh({h}) + F.relu6({h})", "{w}"),
    ("", "torch.special.xlogy({h}, {h})", "{w}"),
    ("", "F.cosine_similarity({h}, {g}, dim=-1).unsqueeze(-1) * {h}", "{w}"),
    ("", "torch.cdist({h}.unsqueeze(1), {g}.unsqueeze(1)).squeeze(1) + {h}", "{w}"),
    ("", "torch.linalg.norm({h}, dim=1, keepdim=True) - {h}", "{w}"),
    ("", "F.pairwise_distance({h}, {g}).view({n}, 1) * {h}", "{w}"),
)  # fmt: skip
HOSTILE: tuple[Template, ...] = (
    ("", "{h}.view({k}, -1).view({n0}, -1)", "{w}"),
    ("", "{h}.t().reshape({n0}, {w})", "{w}"),
    ("", "{h}.reshape(-1, 2 * {w}).reshape(-1, {w}).roll(1, 0)", "{w}"),
    ("", "{h}.view(-1, {k}).view({k}, -1).mean(0, keepdim=True).mean() + {h}", "{w}"),
    ("", "{h} - {h}.mean(0)", "{w}"),
    ("", "{h} / {h}.sum()", "{w}"),
    ("", "{h} + {h}[0]", "{w}"),
    ("", "{h} + {h}[-1:]", "{w}"),
    ("", "{h}.softmax(0)", "{w}"),
    ("", "{h}.cumsum(0)", "{w}"),
    ("", "{h}.flip(0)", "{w}"),
    ("", "{h}.sort(0)[0]", "{w}"),
    ("", "({h} @ {h}.t()) @ {h}", "{w}"),
    ("", "({h} @ {h}.t()).softmax(-1) @ {h}", "{w}"),
    ("", "({h}.t() @ {h}) @ {h}.t().softmax(0)\n", "{w}"),
    ("", "F.normalize({h}, dim=0)", "{w}"),
    ("", "{h} * {n0}", "{w}"),
    ("", "{h} * ({n0} > 3000)", "{w}"),
    ("", "{h} / {n0} ** 0.5", "{w}"),
    ("", "{h} + max(0, {n0} - 3000)", "{w}"),
    ("", "{h} + edge_index.size(1)", "{w}"),
    ("", "{h} + (torch.ones(1, {n0}) @ torch.ones({n0}, 1) - 3000).relu()", "{w}"),
    ("", "{h} * torch.ones({n0}).sum().sub(3000).relu()", "{w}"),
    ("", "{h} + torch.arange({n0}).view(-1, 1)[-1].sub(3000).clamp(min=0)", "{w}"),
    ("a = {h}.new_ones({n0}, 1)", "{h} + (a.t() @ a - 3000).relu()", "{w}"),
    ("a = {h}.new_ones({n0}, 1)", "{h} + torch.addmm(torch.zeros(1, 1), a.t(), a).sub(3000).relu()", "{w}"),
    ("", "{h} + torch.linspace(0, 1, {n0}).unsqueeze(1).sub(1).abs().min()", "{w}"),
    ("", "{h} + torch.zeros(4000, {w}).index_fill(0, torch.tensor([3999]), 1)[:{n0}]", "{w}"),
    ("", "{h} + torch.cat([torch.zeros(3000, {w}), torch.ones(3000, {w})])[:{n0}]", "{w}"),
    ("", "{h} + `Parameter(torch.zeros(6000, {w}))`[:{n0}]", "{w}"),
    ("a = {h} * 2", "a if {n0} < 3000 else a + 1", "{w}"),
    ("a = {h} * 2", "a + 1 if edge_index.size(1) > 9000 else a", "{w}"),
    ("a = {h} * 2", "a + 1 if edge_index.numel() == 0 and x.size(0) > 5 else a", "{w}"),
    ("a = {h} * 2", "a[:3000] if {n0} > 10000 else a", "{w}"),
    ("a = {h}.split(3000)", "torch.cat([a[0], *(1 + one for one in a[1:])])", "{w}"),
    ("a = {h}.chunk(2, 0)", "torch.cat([a[0], *(1 + one for one in a[1:])])", "{w}"),
    ("a = {h}[:4000]", "torch.cat([a, {h}[4000:] + 1])", "{w}"),
    ("a = {h}.narrow(0, 0, min(3000, {n0}))", "torch.cat([a, {h}[3000:] * 2])", "{w}"),
    ("a = torch.tensor_split({h}, [3000])", "torch.cat([a[0], a[1] * 2])", "{w}"),
    ("", "torch.where({h} > 0, {h}, 0.1 * {h})", "{w}"),
    ("", "torch.where({h} == 0, 1.0, {h})", "{w}"),
    ("", "torch.where({h}.abs() > 1e6, {h} * 0, {h})", "{w}"),
    ("", "{h}.masked_fill({h} == 0, 1.0)", "{w}"),
    ("a = {h}.clone(); a[a == 0] = 1", "a", "{w}"),
    ("a = {h}.clone(); a[a.isnan()] = 0", "a", "{w}"),
    ("a = {h}.clone(); a[:, 0] = 1", "a", "{w}"),
    ("a = {h}.clone(); a[0] = 1", "a", "{w}"),
    ("a = {h}.clone(); a[3000:] = 0", "a", "{w}"),
    ("a = {h}.clone(); a[3000:].zero_()", "a", "{w}"),
    ("a = {h}.clone(); b = a.view({n}, 2, {k}); b.mul_(2)", "a", "{w}"),
    ("a = {h}.clone(); b = a[:, :1]; b += 1", "a", "{w}"),
    ("a = {h}.view({n}, 2, {k}); a.add_(1)", "a.flatten(1) + {h}", "{w}"),
    ("a = `Unflatten(1, (2, {k}))`({h}); a.add_(1)", "a.flatten(1) + {h}", "{w}"),
    ("a, b = {h}.chunk(2, -1); a.relu_()", "{h}", "{w}"),
    ("{h}.relu_()", "{h}", "{w}"),
    ("", "({h} > 0).float() * {h}", "{w}"),
    ("", "({h} != 0) * {h} + ({h} == 0)", "{w}"),
    ("", "{h} * {h}.sign()", "{w}"),
    ("", "{h} + (({h} == 0).all())", "{w}"),
    ("", "{h} + {h}.eq(0)", "{w}"),
    ("", "{h} + torch.isinf({h}).float()", "{w}"),
    ("", "{h} + {h}.isnan().any()", "{w}"),
    ("", "{h} + {h}.argmax(-1, keepdim=True)", "{w}"),
    ("", "{h}.topk({k}, -1)[0]", "{k}"),
    ("", "{h}.sort(-1).values", "{w}"),
    ("", "{h}.round()", "{w}"),
    ("", "{h} // 1000", "{w}"),
    ("", "{h} % 1e5", "{w}"),
    ("", "{h} + ({h} / 1e6).trunc()", "{w}"),
    ("", "{h} + F.threshold({h}, 1e6, 0)", "{w}"),
    ("", "F.hardshrink({h}, 1e-12)", "{w}"),
    ("", "F.dropout({h}, p=0.5)", "{w}"),
    ("", "{h} + torch.randn({w})", "{w}"),
    ("", "{h} + 1e-9 * torch.rand_like({h})", "{w}"),
    ("self.count = getattr(self, 'count', 0) + 1", "{h} * (1 if self.count < 5000 else 2)", "{w}"),
    ("a, _ = `GRU({w}, {o})`({h}.unsqueeze(1))", "a.squeeze(1)", "{o}"),
    ("a, _ = `LSTM({w}, {o})`({h})", "a", "{o}"),
    ("a, _ = `GRU({w}, {o}, batch_first=True)`(torch.stack([{h}, {g}]))", "a.mean(0)", "{o}"),
    ("a, _ = `GRU({w}, {o})`(torch.stack([{h}, {g}], 1))", "a[:, 0]", "{o}"),
    ("", "`MultiheadAttention({w}, 2)`(*[{h}.unsqueeze(1)] * 3)[0].squeeze(1)", "{w}"),
    ("", "`TransformerEncoderLayer({w}, 2, 8)`({h}.unsqueeze(1)).squeeze(1)", "{w}"),
    ("", "`BatchNorm1d({w}, track_running_stats=False)`({h})", "{w}"),
    ("", "{h} + edge_index.max()", "{w}"),
    ("", "{h} + torch.bincount(edge_index[1], minlength={n0}).view(-1, 1)", "{w}"),
    ("", "{h} + {h}[edge_index[0]].mean(0)", "{w}"),
    ("", "{h}.index_add(0, edge_index[1], {h}[edge_index[0]])", "{w}"),
    ("", "{h} if {h}.sum() > -1e9 else -{h}", "{w}"),
    ("", "{h} if bool((x.abs() < 1e6).all()) else -{h}", "{w}"),
    ("", "{h} * (x.stride(0) / {f})", "{w}"),
    ("", "{h} + float({h}.max() > 1e7)", "{w}"),
    ("", "{h}.view({n}, 2, {k}).permute(1, 0, 2).reshape({n0}, {w})", "{w}"),
    ("", "{h}.view(2, {n0}, {k}).sum(0)", "{k}"),
    ("", "{h}.unfold(0, 1, 1).squeeze(-1)[:5000]", "{w}"),
    ("", "torch.diag(torch.ones({n0})) @ {h}", "{w}"),
    ("", "torch.eye({n0}) @ {h}", "{w}"),
    ("", "F.avg_pool1d({h}.t().unsqueeze(0), 3, 1, 1)[0].t()", "{w}"),
    ("", "`Conv1d({w}, {o}, 3, padding=1)`({h}.t().unsqueeze(0))[0].t()", "{o}"),
    ("", "F.interpolate({h}.unsqueeze(0), {w})[0]", "{w}"),
    ("", "{h} + torch.tensor(x.shape[0]).float().log()", "{w}"),
    ("", "{h} * torch.full(({n0}, 1), 1.0 if {n0} < 4000 else 2.0)", "{w}"),
    ("", "{h} + torch.arange({w}, {n0} + {w})[0]", "{w}"),
    ("", "{h} + ({n0} // 4000)", "{w}"),
    ("", "{h} + min({n0}, 1)", "{w}"),
    ("", "{h} + bool({n0} > 1)", "{w}"),
)  # fmt: skip

EDGES = (
    "edge_index.flip(0)",
    "edge_index[[1, 0]]",
    "torch.stack([edge_index[1], edge_index[0]])",
    "edge_index.flip([0])",
)


class _Drawn:
    """A module as it is drawn, line by line."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.parts, self.lines, self.hostile = list[str](), list[str](), list[str]()
        self.rows: dict[str, int] = {"x": FEATURES}
        self.turned = self.rng.random() < 0.12
        self.begin = self.rng.random() < 0.25

    def part(self, text: str) -> str:
        home = "pyg" if text.startswith("JumpingKnowledge") else "nn"
        self.parts.append(text if text.startswith(("pyg.", "nn.", "Own")) else f"{home}.{text}")
        return f"self.p{len(self.parts) - 1}"

    def let(self, text: str, width: int) -> str:
        name = f"h{len(self.rows)}"
        self.lines.append(f"{name} = {text}")
        self.rows[name] = width
        return name

    def conv(self, h: str) -> str:
        width, out = self.rows[h], self.rng.choice(WIDTHS)
        if self.rng.random() < 0.15:
            text, out = "pyg." + self.rng.choice(SAME_WIDTH).format(w=width), width
        elif self.turned and self.rng.random() < 0.4:
            text = f"pyg.DirGNNConv(pyg.SAGEConv({width}, {out}))"
        else:
            text = self.rng.choice(CONVS).format(w=width, o=out)
            text = text if text.startswith("Own") else f"pyg.{text}"
        edges = self.rng.choice(EDGES) if self.turned and self.rng.random() < 0.5 else "edge_index"
        return self.let(f"{self.part(text)}({h}, {edges})", out)

    def function(self, h: str, table: tuple[Template, ...]) -> str:
        """Add a function of rows and return the name of its result."""
        before, result, width = self.rng.choice(table)
        w = self.rows[h]
        if w < 2 or w % 2:
            h = self.let(f"{self.part(f'Linear({w}, 4)')}({h})", 4)
            w = 4
        like = [name for name, one in self.rows.items() if one == w]
        many = self.rng.choice(SIZES).format(h=h)
        known = {"h": h, "g": self.rng.choice(like), "w": w, "k": w // 2, "o": self.rng.choice(WIDTHS), "f": FEATURES}
        known |= {"n": many, "n0": many if many != "-1" else "x.size(0)"}
        texts = [re.sub("`(.+?)`", lambda found: self.part(found[1]), one.format(**known)) for one in (before, result)]
        if table is HOSTILE:
            self.hostile.append(result if not before else f"{before} | {result}")
        self.lines += [one for one in re.split("; |\n", texts[0]) if one]
        return self.let(texts[1].strip(), eval(width.format(**known)))

    def rows_of(self, h: str, most: int, hostile: float) -> str:
        for _ in range(self.rng.randint(0, most)):
            h = self.function(h, HOSTILE if self.rng.random() < hostile else READ)
        return h


def draw(seed: int, hostile: float = 0.12) -> Source:
    """Return a random module's source, which defines `make()`; `hostile`: the share of functions that none may read."""
    drawn = _Drawn(seed)
    h = drawn.rows_of("x", 1, hostile) if drawn.begin else "x"
    for _ in range(drawn.rng.choice((1, 1, 2, 2, 3))):
        h = drawn.rows_of(drawn.conv(h), 2, hostile)
        if drawn.rng.random() < 0.15:
            like = [name for name, one in drawn.rows.items() if one == drawn.rows[h] and name != h]
            h = drawn.let(f"{h} + {drawn.rng.choice(like)}", drawn.rows[h]) if like else h
    takes, call, first = drawn.rng.choice(
        (("x, edge_index", "module(x, edge_index)", ""),) * 6
        + (("data", "module(Data(x=x, edge_index=edge_index))", "x, edge_index = data.x, data.edge_index"),)
        + (("x, edge_index, more=None", "module(x, edge_index)", "x = x if more is None else x + more"),)
    )
    text = _TEXT.format(
        own=drawn.rng.choice(OWN_CONVS),
        aggr=drawn.rng.choice(("sum", "mean", "max")),
        parts="\n        ".join(f"self.p{i} = {one}" for i, one in enumerate(drawn.parts)) or "pass",
        takes=takes,
        lines="\n        ".join([*([first] if first else []), *drawn.lines]),
        result=h,
    )
    return Source(text, call, tuple(drawn.hostile))


_TEXT = """import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg


class Own(pyg.MessagePassing):
    def __init__(self, into, out):
        super().__init__(aggr="{aggr}")
        self.lin = nn.Linear(into, out)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        {own}


class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        {parts}

    def forward(self, {takes}):
        {lines}
        return {result}
"""
