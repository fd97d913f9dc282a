"""Random modules that look rows up by the types of edges."""

from __future__ import annotations

from scripts.tools.pyg_random_programs import Drawn, Source
from scripts.tools.pyg_random_tables import WIDTHS

LOOKED_UP = (
    *["{e}(edge_type)"] * 2, "{e}(edge_type).relu()", "{e}.weight[edge_type]", "F.embedding(edge_type, {e}.weight)",
    "{e}(edge_type) * (edge_type != 1).unsqueeze(-1)", "F.one_hot(edge_type, 4).to(x)", "{m}({e}(edge_type)).tanh()",
    "{m}(F.one_hot(edge_type, num_classes=4).to(x))", "torch.where((edge_type == 2).view(-1, 1), {e}(edge_type), 0.5)",
    "{e}.weight.index_select(0, edge_type.view(-1)) / (edge_type.unsqueeze(-1) + 1)",
)  # fmt: skip
HOSTILE_LOOKED_UP = (
    "{e}((edge_type + 1) % 3)", "{e}(edge_type.flip(0))", "{e}(edge_type).cumsum(0)", "{e}(edge_type.sort()[0])",
    "{e}(edge_type).mean(0, keepdim=True).expand(edge_type.size(0), 4)", "{e}(edge_type) / (edge_type.max() + 1)",
    "{e}(edge_type.roll(1))", "{e}(edge_type) * edge_type.float().mean()", "{e}(edge_type)[torch.argsort(edge_type)]",
    "F.one_hot(edge_type - edge_type.min(), 4).to(x)", "{e}(edge_type.unique(return_inverse=True)[1])",
    "{e}(edge_type // 2)",
)  # fmt: skip
OF_ROWS = (
    "GINEConv(nn.Linear({w}, {o}), edge_dim=4)", "GATConv({w}, {o}, edge_dim=4)", "GENConv({w}, {o}, edge_dim=4)",
    "GATv2Conv({w}, {o}, edge_dim=4, add_self_loops=False)", "NNConv({w}, {o}, nn.Linear(4, {w} * {o}))",
    "TransformerConv({w}, {o}, edge_dim=4)", "ResGatedGraphConv({w}, {o}, edge_dim=4)",
)  # fmt: skip


def draw_looked_up(seed: int, hostile: float) -> Source:
    """Return a random module's source whose convs are handed functions of the types of edges."""
    drawn = Drawn(seed)
    drawn.turned, h = False, "x"
    table, matrix = drawn.part("nn.Embedding(3, 4)"), drawn.part("nn.Linear(4, 4)")
    for _ in range(drawn.rng.choice((1, 2, 2))):
        width, out = drawn.rows[h], drawn.rng.choice(WIDTHS)
        if width % 2:
            h = drawn.let(f"{drawn.part(f'nn.Linear({width}, 4)')}({h})", 4)
            width = 4
        is_hostile = drawn.rng.random() < hostile
        text = drawn.rng.choice(HOSTILE_LOOKED_UP if is_hostile else LOOKED_UP).format(e=table, m=matrix)
        drawn.hostile += [text] if is_hostile else []
        part = drawn.part("pyg." + drawn.rng.choice(OF_ROWS).format(w=width, o=out))
        h = drawn.rows_of(drawn.let(f"{part}({h}, edge_index, {text})", out), 2, hostile)
    relations = [("vertex", name, "vertex") for name in ("a", "b", "c")]
    options = "dict(edge_types=['a', 'b', 'c'], features=4)"
    text = drawn.text("x, edge_index, edge_type", h, "made")
    call = "module(x, edge_index, edge_type)"
    return Source(text, call, tuple(drawn.hostile), options, "looked up", {"vertex": 4}, relations)
