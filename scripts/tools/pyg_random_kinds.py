"""Random torch modules with kinds of vertices as source text: HeteroConv, to_hetero, convs by relation, types of edges.

In the templates {d} and {e} are dicts of rows by kind, {k} and {j} kinds, {r} a relation; all else is as in
pyg_random_programs.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from scripts.tools.pyg_random_lookups import draw_looked_up
from scripts.tools.pyg_random_programs import Drawn, Source
from scripts.tools.pyg_random_tables import HOSTILE, READ, WIDTHS

Relation = tuple[str, str, str]
POOL: tuple[Relation, ...] = (
    ("user", "buys", "item"), ("item", "rev_buys", "user"), ("user", "likes", "item"), ("user", "follows", "user"),
    ("item", "near", "item"), ("item", "of", "tag"), ("tag", "rev_of", "item"), ("tag", "to", "user"),
)  # fmt: skip
KINDS = {"user": 4, "item": 6, "tag": 2}
BETWEEN = (
    "SAGEConv(({s}, {t}), {o})", "SAGEConv(({s}, {t}), {o}, aggr='max')", "SAGEConv(({s}, {t}), {o}, normalize=True)",
    "GraphConv(({s}, {t}), {o})", "GraphConv(({s}, {t}), {o}, aggr='mean')", "TransformerConv(({s}, {t}), {o})",
    "GATConv(({s}, {t}), {o}, add_self_loops=False)", "GATv2Conv(({s}, {t}), {k}, heads=2, add_self_loops=False)",
    "ResGatedGraphConv(({s}, {t}), {o})", "SAGEConv(({s}, {t}), {o}, aggr='sum', bias=False)",
    "SAGEConv(({s}, {t}), {o}, root_weight=False)",
)  # fmt: skip
WITHIN = (
    "GCNConv({s}, {o})", "GINConv(nn.Sequential(nn.Linear({s}, {o}), nn.ReLU()))", "GATConv({s}, {o})",
    "EdgeConv(nn.Linear(2 * {s}, {o}))", "SGConv({s}, {o}, K=2)", "TAGConv({s}, {o}, K=2)",
)  # fmt: skip
ATTRIBUTED = (
    "GATv2Conv(({s}, {t}), {o}, edge_dim=3, add_self_loops=False)", "TransformerConv(({s}, {t}), {o}, edge_dim=3)",
    "GATConv(({s}, {t}), {k}, heads=2, edge_dim=3, add_self_loops=False)",
    "NNConv(({s}, {t}), {o}, nn.Linear(3, {s} * {o}))",
    "GeneralConv(({s}, {t}), {o}, in_edge_channels=3)",
)  # fmt: skip
WEIGHTED = ("GraphConv(({s}, {t}), {o})", "GraphConv(({s}, {t}), {o}, aggr='mean')")
LAZY = (
    "SAGEConv((-1, -1), {o})", "SAGEConv((-1, -1), {o}, aggr='max')", "GraphConv((-1, -1), {o})",
    "GATConv((-1, -1), {o}, add_self_loops=False)", "GATv2Conv((-1, -1), {o}, add_self_loops=False)",
)  # fmt: skip
TYPED = (
    "RGCNConv({w}, {o}, 3)", "RGCNConv({w}, {o}, 3, num_bases=2)", "RGCNConv({w}, {o}, 3, num_blocks=2)",
    "FastRGCNConv({w}, {o}, 3, num_bases=2)", "RGCNConv({w}, {o}, 3, aggr='sum', root_weight=False)",
    "RGCNConv({w}, {o}, 3, aggr='max')", "RGATConv({w}, {o}, 3)", "FiLMConv({w}, {o}, 3)",
)  # fmt: skip
OF_DICTS = (
    "{{k: F.relu(v) for k, v in {d}.items()}}",
    "{{k: F.dropout(F.leaky_relu(v, 0.1), p=0.5, training=self.training) for k, v in {d}.items()}}",
    "{{k: `Linears`[k](v).tanh() for k, v in {d}.items()}}",
    "{{k: `Norms`[k](v) for k, v in {d}.items()}}",
    "{{key: torch.sigmoid({d}[key]) * {d}[key] for key in {d}}}",
    "dict(zip({d}.keys(), map(F.relu, {d}.values())))",
    "dict(map(lambda one: (one[0], one[1].relu()), {d}.items()))",
    "{{**{e}, **{d}}}",
    "{{k: v for k, v in {d}.items() if k != '{k}'}}",
    "{{k: v + {e}[k] if k in {e} and {e}[k].size(1) == v.size(1) else v for k, v in {d}.items()}}",
    "{{k: torch.cat([v, {e}[k]], dim=-1) if k in {e} else v for k, v in {d}.items()}}",
    "{{k: v.relu() if k == '{k}' else v for k, v in {d}.items()}}",
    "{{k: v / (1 + v.norm(dim=-1, keepdim=True)) for k, v in sorted({d}.items())}}",
    "{{k: F.normalize(v, dim=-1) for k, v in {d}.items()}}",
    "{{k: v + i for i, (k, v) in enumerate({d}.items())}}",
    "{d} if {r} in edge_index_dict else {e}",
    "{{k: v * len(edge_index_dict) for k, v in {d}.items()}}",
    "{{**{d}, '{k}': {d}['{k}'] * torch.sigmoid(`Linear1`({d}['{k}']))}}",
)
IN_STATEMENTS = (
    "{n} = dict({d})\nfor key in {n}:\n    {n}[key] = {n}[key].relu()",
    "{n} = {{}}\nfor key, value in {d}.items():\n    {n}[key] = value.clamp(min=-1)",
    "{n} = {d}.copy()\n{n}['{k}'] = {n}['{k}'] * 2",
    "{n} = dict({d})\nif '{k}' in {n}:\n    {n}['{k}'] = {n}['{k}'].tanh()",
    "{n} = dict({d})\nif {r} in edge_index_dict:\n    {n}['{k}'] = {n}['{k}'] + 1",
    "{n} = dict({d})\nif edge_index_dict.get({r}) is not None:\n    {n}['{k}'] = 0.5 * {n}['{k}']",
    "{n} = dict({d})\nfor kind, name, other in edge_index_dict:\n    if name.startswith('rev_') and other in {n}:\n"
    "        {n}[other] = {n}[other] - 1",
)
HOSTILE_DICTS = (
    "{n} = {{**{d}, '{k}': {d}['{k}'] + edge_index_dict[{r}].size(1)}}",
    "{n} = {{**{d}, '{k}': {d}['{k}'] * (edge_index_dict[{r}].size(1) > 0)}}",
    "{n} = {{**{d}, '{k}': {d}['{k}'] + {d}['{j}'].mean()}}",
    "{n} = {{**{d}, '{k}': {d}['{k}'] + 1e-3 * {d}['{j}'].sum()}}",
    "{n} = {{**{d}, '{k}': {d}['{k}'] * {d}['{j}'].size(0)}}",
    "{n} = {{**{d}, '{k}': {d}['{k}'] * (1 if len({d}['{j}']) < 3000 else 2)}}",
    "{n} = {d} if edge_index_dict[{r}].numel() else {e}",
    "{n} = {d} if edge_index_dict[{r}].size(1) < 8000 else {e}",
    "{n} = {{k: v - v.mean(0) for k, v in {d}.items()}}",
    "{n} = {{k: v / v.size(0) for k, v in {d}.items()}}",
    "{n} = {{k: v + i for i, (k, v) in enumerate(sorted({d}.items(), key=lambda one: len(one[1])))}}",
    "a = getattr(self, 'seen', 0); self.seen = a + 1; {n} = {d} if a < 4000 else {{**{d}, '{k}': 2 * {d}['{k}']}}",
    "self.kept.append(1); {n} = {d} if len(self.kept) < 4000 else {e}",
    "self.known['calls'] = self.known.get('calls', 0) + 1; {n} = {d} if self.known['calls'] < 4000 else {e}",
    "self.buffer += 1; {n} = {{k: v * (self.buffer < 4000) for k, v in {d}.items()}}",
    "self.known['{k}'] = {d}['{k}']; {n} = {{**{d}, '{k}': {d}['{k}'] + self.known['{k}']}}",
    "edge_index_dict = {{r: e.flip(0) for r, e in edge_index_dict.items()}}; {n} = {d}",
    "edge_index_dict = dict(reversed(edge_index_dict.items())); {n} = {d}",
    "edge_index_dict = {{r: e[:, :7000] for r, e in edge_index_dict.items()}}; {n} = {d}",
    "edge_index_dict = {{r: e.unique(dim=1) for r, e in edge_index_dict.items()}}; {n} = {d}",
    "edge_index_dict = dict(zip(edge_index_dict, reversed(list(edge_index_dict.values())))); {n} = {d}",
    "edge_index_dict = {{r: e for r, e in edge_index_dict.items() if e.size(1) > 0}}; {n} = {d}",
    "edge_index_dict = {{r: e for r, e in edge_index_dict.items() if r != {r}}}; {n} = {d}",
    "edge_index_dict = {{**edge_index_dict, {r}: edge_index_dict[{r}][:, ::2]}}; {n} = {d}",
    "edge_index_dict.pop({r}); {n} = {d}",
    "{d}['{k}'].add_(1); {n} = {d}",
    "{d}['{k}'] += {d}['{k}']; {n} = {e}",
    "{n} = {d}; {n}['{k}'] = {n}['{k}'] + 1; {n} = {e}",
    "{n} = {{k: v.round() for k, v in {d}.items()}}",
    "{n} = {{k: (v * 10).long().float() / 10 for k, v in {d}.items()}}",
    "{n} = {{k: v // 1000 for k, v in {d}.items()}}",
    "{n} = {{k: F.dropout(v, 0.5) for k, v in {d}.items()}}",
    "{n} = {d} if all(bool(v.abs().max() < 1e6) for v in {d}.values()) else {e}",
    "{n} = {d} if {d}['{k}'].sum() > -1e9 else {e}",
    "a = torch.bincount(edge_index_dict[{r}][1], minlength=len({d}['{k}'])); "
    "{n} = {{**{d}, '{k}': {d}['{k}'] + a.view(-1, 1)}}",
    "{n} = {{**{d}, '{k}': {d}['{k}'] + {d}['{j}'][0].sum()}}",
    "a = edge_index_dict[{r}]; {n} = {{**{d}, '{k}': {d}['{k}'] * (a.max() < 3000) if a.numel() else {d}['{k}']}}",
    "{n} = {{k: v for k, v in {d}.items() if len(v) > 0}}",
    "{n} = {{k: v for k, v in {d}.items() if v.abs().sum() > 0}}",
)
TYPED_EDGES = (
    *[("edge_index", "edge_type")] * 5, ("edge_index[:, edge_type == 1]", ""), ("edge_index[:, edge_type == 2]", ""),
    ("edge_index", ""), ("edge_index[:, edge_type != 0]", ""),
)  # fmt: skip
HOSTILE_TYPES = (
    "edge_type.clamp(max=1)", "edge_type % 2", "edge_type.flip(0)", "(edge_type + 1) % 3",
    "torch.zeros_like(edge_type)",
    "edge_type[:9000]", "edge_type.roll(1)", "edge_type // 2", "2 - edge_type", "edge_type.sort()[0]",
)  # fmt: skip


class _Dicts(Drawn):
    """A module of dicts by kind, as it is drawn; `dicts` are the widths of rows by kind, by the names of dicts."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.turned = False
        self.sizes = "{h}.size(0)", "{h}.shape[0]", "len({h})", "-1"
        every = list(POOL) if self.rng.random() < 0.7 else [one for one in POOL if "tag" not in one]
        chosen = self.rng.sample(every, self.rng.randint(2, 5))
        self.relations = [one for one in POOL if one in chosen]
        ends = {kind for one in self.relations for kind in (one[0], one[2])}
        self.kinds = {kind: width for kind, width in KINDS.items() if kind in ends or self.rng.random() < 0.2}
        self.dicts = {"x_dict": dict(self.kinds)}
        self.takes = {"edge_index_dict": True}
        self.lists, self.hetero = list[str](), False

    def add(self, text: str, widths: dict[str, int]) -> str:
        name = f"d{len(self.dicts)}"
        self.lines += f"{name} = {text}".split("\n")
        self.dicts[name] = widths
        return name

    def by_kind(self, texts: dict[str, str]) -> str:
        return "nn.ModuleDict({" + ", ".join(f"{kind!r}: {text}" for kind, text in texts.items()) + "})"

    def of(self, d: str) -> list[Relation]:
        return [one for one in self.relations if {one[0], one[2]} <= set(self.dicts[d])]

    def conv_text(self, one: Relation, widths: dict[str, int], out: int, table: Iterable[str] = ()) -> str:
        s, t = widths[one[0]], widths[one[2]]
        texts = list(table) or [*BETWEEN, *(2 * list(WITHIN) if one[0] == one[2] else [])]
        return "pyg." + self.rng.choice(texts).format(s=s, t=t, o=out, k=out // 2)

    def layer(self, d: str) -> str:
        """Add a layer of convs on relations, and return the name of the dict that it makes."""
        there, widths = self.of(d), self.dicts[d]
        if not there:
            return d
        chosen = [one for one in there if self.rng.random() < 0.8] or there[:1]
        out = {one[2]: self.rng.choice(WIDTHS[1:]) for one in chosen}
        way = self.rng.random()
        if way < 0.12 and len(there) == len(self.relations) and set(widths) == set(self.kinds):
            wide = 2 * self.rng.randint(1, 4)
            into = {kind: widths[kind] for kind in widths}
            text = self.part(f"pyg.HGTConv({into}, {wide}, ({list(self.kinds)}, {self.relations}), heads=2)")
            return self.add(f"{text}({d}, edge_index_dict)", {one[2]: wide for one in self.relations})
        if way < 0.35:
            return self.looped(d, chosen, out)
        aggr = self.rng.choice(("sum", "mean", "max", "min", "cat"))
        kind_of = self.rng.random()
        table, more = tuple[str, ...](), ""
        if kind_of < 0.2:
            table, more = ATTRIBUTED, ", edge_attr_dict"
        elif kind_of < 0.3:
            table, more = WEIGHTED, ", edge_weight_dict"
        if more:
            self.takes[more[2:]] = True
            more = f", {more[2:]}={more[2:]}"
        convs = ", ".join(f"{one}: {self.conv_text(one, widths, out[one[2]], table)}" for one in chosen)
        many = {kind: sum(one[2] == kind for one in chosen) if aggr == "cat" else 1 for kind in out}
        made = {kind: out[kind] * many[kind] for kind in widths if kind in out}
        self.hetero = True
        return self.add(f"{self.part(f'pyg.HeteroConv({{{convs}}}, aggr={aggr!r})')}({d}, edge_index_dict{more})", made)

    def looped(self, d: str, chosen: list[Relation], out: dict[str, int]) -> str:
        """Add convs that are called one by one."""
        widths, name = self.dicts[d], f"d{len(self.dicts)}"
        if self.rng.random() < 0.5:
            convs = self.by_kind({"__".join(one): self.conv_text(one, widths, out[one[2]]) for one in chosen})
            part = self.part(convs)
            self.lines += [
                "found = {}",
                "for (source, name, target), edges in edge_index_dict.items():",
                f"    if f'{{source}}__{{name}}__{{target}}' in {part}:",
                f"        conv = {part}[f'{{source}}__{{name}}__{{target}}']",
                f"        rows = {d}[source] if source == target else ({d}[source], {d}[target])"
                if any(one[0] == one[2] for one in chosen)
                else f"        rows = ({d}[source], {d}[target])",
                "        found.setdefault(target, []).append(conv(rows, edges))",
            ]
            how = self.rng.choice(("sum(rows)", "torch.stack(rows).mean(0)", "torch.stack(rows, -1).amax(-1)"))
            self.dicts[name] = out
            self.lines.append(f"{name} = {{kind: {how} for kind, rows in found.items()}}")
            return name
        made = dict[str, int]()
        self.lines.append(f"{name} = dict({d})" if self.rng.random() < 0.5 else f"{name} = {{}}")
        shared = None
        kept = dict(widths) if self.lines[-1].endswith(f"({d})") else {}
        for source, way, target in chosen:
            rel = (source, way, target)
            key = str(rel) if self.rng.random() < 0.5 else f"{source!r}, {way!r}, {target!r}"
            wide = made.get(target, out[target])
            ends = widths[source], widths[target], wide
            if shared is None or shared[1] != ends:
                shared = self.part(self.conv_text(rel, widths, wide, BETWEEN)), ends
            rows = f"({d}[{source!r}], {d}[{target!r}])"
            self.lines.append(f"h = {shared[0]}({rows}, edge_index_dict[{key}])")
            if target in made and self.rng.random() < 0.5:
                gate = self.part(f"nn.Linear({2 * wide}, {wide})")
                self.lines.append(f"g = torch.sigmoid({gate}(torch.cat([h, {name}[{target!r}]], dim=-1)))")
                self.lines.append(f"{name}[{target!r}] = g * h + (1 - g) * {name}[{target!r}]")
            elif target in made:
                self.lines.append(f"{name}[{target!r}] = {name}[{target!r}] + h")
            else:
                self.lines.append(f"{name}[{target!r}] = h")
            made[target] = wide
        self.dicts[name] = kept | made
        return name

    def between(self, d: str, hostile: float) -> str:
        """Add functions of rows by kind, and return the name of the dict that they make."""
        for _ in range(self.rng.randint(0, 2)):
            widths = self.dicts[d]
            if not widths:
                return d
            kind, bad = self.rng.choice(list(widths)), self.rng.random() < hostile
            known = {"d": d, "k": kind, "j": self.rng.choice(list(widths)), "n": f"d{len(self.dicts)}"}
            same = [name for name, one in self.dicts.items() if one == widths]
            known |= {"r": str(self.rng.choice(self.relations)), "e": self.rng.choice(same)}
            chance = self.rng.random()
            if chance < 0.35:
                self.rows = {f"{d}_{kind}": widths[kind]}
                self.lines.append(f"{d}_{kind} = {d}['{kind}']")
                h = self.function(f"{d}_{kind}", HOSTILE[:60] if bad else READ)
                d = self.add(f"{{**{d}, '{kind}': {h}}}", {**widths, kind: self.rows[h]})
            elif bad or chance < 0.6:
                text = self.rng.choice(HOSTILE_DICTS if bad else IN_STATEMENTS).format(**known)
                self.hostile += [text] * bad
                self.lines += text.split("\n") if "\n" in text else text.split("; ")
                d = known["n"]
                self.dicts[d] = widths
            else:
                d = self.of_dicts(d, known)
        return d

    def of_dicts(self, d: str, known: dict[str, str]) -> str:
        text, widths = self.rng.choice(OF_DICTS), self.dicts[d]
        if "cat([" in text:
            known["e"] = self.rng.choice(list(self.dicts))
        e = self.dicts[known["e"]]
        if text.startswith("{{**{e}"):
            known["e"] = self.rng.choice(list(self.dicts))
            widths = {**self.dicts[known["e"]], **widths}
        elif "if k != " in text:
            if len(widths) < 2:
                return d
            widths = {kind: width for kind, width in widths.items() if kind != known["k"]}
        elif "cat([" in text:
            widths = {kind: width + e.get(kind, 0) for kind, width in widths.items()}
        out = {kind: self.rng.choice(WIDTHS[1:]) for kind in widths}
        linears = {kind: f"nn.Linear({width}, {out[kind]})" for kind, width in widths.items()}
        norms = {kind: f"nn.{self.rng.choice(('LayerNorm', 'BatchNorm1d'))}({width})" for kind, width in widths.items()}
        parts = {
            "`Linears`": self.by_kind(linears),
            "`Norms`": self.by_kind(norms),
            "`Linear1`": f"nn.Linear({widths.get(known['k'], 1)}, 1)",
        }
        for name, made in parts.items():
            if name in text:
                text = text.replace(name, self.part(made))
                widths = out if name == "`Linears`" else widths
        return self.add(text.format(**known), widths)


def _draw_dicts(seed: int, hostile: float) -> Source:
    drawn = _Dicts(seed)
    d = "x_dict"
    for _ in range(drawn.rng.choice((1, 2, 2, 3))):
        d = drawn.between(drawn.layer(d), hostile)
    d = d if drawn.dicts[d] else "x_dict"
    rng, widths = drawn.rng, drawn.dicts[d]
    kind = rng.choice(list(widths))
    options, logits, result, index = "", "", d, ""
    way = rng.random()
    if way < 0.3:
        result = f"{d}['{kind}']"
        widths = {kind: widths[kind]}
    elif way < 0.45:
        options, index = f"output='{kind}', ", f"['{kind}']"
    elif way < 0.55 and len(widths) > 1:
        result, index = ", ".join(f"{d}['{one}']" for one in widths), f"[{list(widths).index(kind)}]"
        options = f"output={list(widths).index(kind)}, "
    takes = ", ".join(["x_dict", *drawn.takes])
    head = rng.random() < 0.3 and not index
    if head and way < 0.3:
        drawn.classifier = f"nn.Linear({widths[kind]}, 3)"
        returned = "self.classifier(made)"
    elif head:
        drawn.classifier = drawn.by_kind({one: f"nn.Linear({width}, 3)" for one, width in widths.items()})
        returned = "{kind: self.classifier[kind](rows) for kind, rows in made.items()}"
    if head:
        options += "head='classifier', "
        logits, call = f"module({takes})", f"module.embed({takes})"
    else:
        returned, call = "made", f"module({takes}){index}"
    if rng.random() < 0.7 or not drawn.hetero:
        options += f"metadata=({list(drawn.kinds)}, {drawn.relations}), features={drawn.kinds}, "
    link = (kind, kind) if rng.random() < 0.1 and (index or way < 0.3) and not head else None
    text = drawn.text(takes, result, returned)
    made = Source(text, call, tuple(drawn.hostile), f"dict({options})", "dicts", drawn.kinds, drawn.relations)
    return made._replace(logits=logits, link=("", "") if link else None)


def _draw_to_hetero(seed: int, hostile: float) -> Source:
    drawn = _Dicts(seed)
    drawn.rows = {"x": 4}
    drawn.relations += [("item", "into", one) for one in drawn.kinds if one not in {end for *_, end in drawn.relations}]
    drawn.kinds |= {"item": KINDS["item"]}
    drawn.relations += [("user", "buys", "item")] * (not any(end == "item" for *_, end in drawn.relations))
    drawn.kinds |= {kind: KINDS[kind] for one in drawn.relations for kind in (one[0], one[2])}
    drawn.relations += [("item", "into", "user")] * (not any(end == "user" for *_, end in drawn.relations))
    drawn.kinds |= {"user": KINDS["user"]}
    h = "x"
    drawn.parts = ["nn.Identity()"]
    for _ in range(drawn.rng.choice((1, 2))):
        out = drawn.rng.choice(WIDTHS[1:])
        text = drawn.rng.choice(LAZY).format(o=out)
        h = drawn.let(f"{drawn.part(f'pyg.{text}')}({h}, edge_index)", out)
        drawn.rows.pop("x", None)
        h = drawn.rows_of(h, 2, hostile)
    aggr = drawn.rng.choice(("sum", "mean", "max", "min", "mul"))
    metadata = f"({list(drawn.kinds)}, {drawn.relations})"
    text = drawn.text("x, edge_index", h, "made").replace("class Drawn(", "class Plain(")
    text += f"\n\ndef Drawn():\n    return pyg.to_hetero(Plain(), {metadata}, aggr={aggr!r})\n"
    options = f"dict(features={drawn.kinds}, metadata={metadata})"
    call = "module(x_dict, edge_index_dict)"
    return Source(text, call, tuple(drawn.hostile), options, "to_hetero", drawn.kinds, drawn.relations)


def _draw_typed(seed: int, hostile: float) -> Source:
    drawn = Drawn(seed)
    drawn.turned, h = False, "x"
    for _ in range(drawn.rng.choice((1, 2, 2))):
        width, out = drawn.rows[h], drawn.rng.choice(WIDTHS)
        if width % 2:
            h = drawn.let(f"{drawn.part(f'nn.Linear({width}, 4)')}({h})", 4)
            width = 4
        edges, types = drawn.rng.choice(TYPED_EDGES)
        if drawn.rng.random() < hostile and types:
            types = drawn.rng.choice(HOSTILE_TYPES)
            drawn.hostile.append(types)
        text = drawn.rng.choice(TYPED if types else ("SAGEConv({w}, {o})", "GraphConv({w}, {o})", "GATConv({w}, {o})"))
        part = drawn.part("pyg." + text.format(w=width, o=out))
        h = drawn.rows_of(drawn.let(f"{part}({h}, {edges}{', ' + types if types else ''})", out), 2, hostile)
    text = drawn.text("x, edge_index, edge_type", h, "made")
    relations = [("vertex", name, "vertex") for name in ("a", "b", "c")]
    options = "dict(edge_types=['a', 'b', 'c'], features=4)"
    call = "module(x, edge_index, edge_type)"
    return Source(text, call, tuple(drawn.hostile), options, "typed", {"vertex": 4}, relations)


def draw_kinds(seed: int, hostile: float = 0.12) -> Source:
    """Return a random module's source that has kinds of vertices or types of edges."""
    chance = random.Random(f"kinds {seed}").random()
    if chance < 0.6:
        return _draw_dicts(seed, hostile)
    if chance < 0.75:
        return _draw_to_hetero(seed, hostile)
    return (_draw_typed if chance < 0.9 else draw_looked_up)(seed, hostile)
