"""Random torch modules as source text: convs of PyG, and between them functions of rows as users write them."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from scripts.tools.pyg_random_tables import (
    CONVS,
    EDGES,
    FEATURES,
    HOSTILE,
    OWN_CONVS,
    PAIRS,
    READ,
    SAME_WIDTH,
    SIZES,
    WIDTHS,
    Template,
)


class Source(NamedTuple):
    """A module's source.

    call: what makes the embedding; logits: what makes those of its head. hostile: what is in it that most models may
    not have. options: of export_model, as Python. group: what it is counted with. kinds: widths of features by kind,
    and relations; None where it has none. link: kinds whose pairs its class Pair scores.
    """

    text: str
    call: str
    hostile: tuple[str, ...] = ()
    options: str = "dict(features=4)"
    group: str = "plain"
    kinds: dict[str, int] | None = None
    relations: list[tuple[str, str, str]] | None = None
    logits: str = ""
    link: tuple[str, str] | None = None

    @property
    def typed(self) -> bool:
        """Return whether it takes the types of edges."""
        return "edge_type" in self.call


class Drawn:
    """A module as it is drawn, line by line."""

    def __init__(self, seed: int) -> None:
        """Begin with the rows of the features."""
        self.rng = random.Random(seed)
        self.parts, self.lines, self.hostile = list[str](), list[str](), list[str]()
        self.rows: dict[str, int] = {"x": FEATURES}
        self.turned = self.rng.random() < 0.12
        self.begin = self.rng.random() < 0.25
        self.sizes: tuple[str, ...] = SIZES
        self.classifier = ""

    def part(self, text: str) -> str:
        """Add a part of the module, and return its name."""
        home = "pyg" if text.startswith("JumpingKnowledge") else "nn"
        self.parts.append(text if text.startswith(("pyg.", "nn.", "Own")) else f"{home}.{text}")
        return f"self.p{len(self.parts) - 1}"

    def let(self, text: str, width: int) -> str:
        """Add a line that makes rows, and return their name."""
        name = f"h{len(self.rows)}"
        self.lines.append(f"{name} = {text}")
        self.rows[name] = width
        return name

    def conv(self, h: str) -> str:
        """Add a conv and return the name of its result."""
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
        many = self.rng.choice(self.sizes).format(h=h)
        known = {"h": h, "g": self.rng.choice(like), "w": w, "k": w // 2, "o": self.rng.choice(WIDTHS), "f": FEATURES}
        known |= {"n": many, "n0": many if many != "-1" else self.sizes[0].format(h=h)}
        texts = [re.sub("`(.+?)`", lambda found: self.part(found[1]), one.format(**known)) for one in (before, result)]
        if table is HOSTILE:
            self.hostile.append(result if not before else f"{before} | {result}")
        self.lines += [one for one in re.split("; |\n", texts[0]) if one]
        return self.let(texts[1].strip(), eval(width.format(**known)))

    def text(self, takes: str, result: str, returned: str, first: str = "") -> str:
        """Return the source of what was drawn; `result` is the embedding, `returned` what is made of it."""
        given = ", ".join(one.split("=")[0] for one in takes.split(", "))
        parts = [f"self.p{i} = {one}" for i, one in enumerate(self.parts)]
        parts += [f"self.classifier = {self.classifier}"] * bool(self.classifier)
        return _TEXT.format(
            own=self.rng.choice(OWN_CONVS),
            aggr=self.rng.choice(("sum", "mean", "max")),
            pair=random.Random(f"pair {result}{len(self.parts)}").choice(PAIRS),
            parts="\n        ".join(parts) or "pass",
            takes=takes,
            given=given,
            name="embed" if self.classifier else "forward",
            lines="\n        ".join([*([first] if first else []), *self.lines]),
            result=result,
            more=_MORE.format(takes=takes, given=given, returned=returned) if self.classifier else "",
        )

    def rows_of(self, h: str, most: int, hostile: float) -> str:
        """Add some functions of rows and return the name of the last one's result."""
        for _ in range(self.rng.randint(0, most)):
            h = self.function(h, HOSTILE if self.rng.random() < hostile else READ)
        return h


def draw(seed: int, hostile: float = 0.12) -> Source:
    """Return a random module's source, which defines `make()`; `hostile`: the share of functions that none may read."""
    drawn = Drawn(seed)
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
    result, options, index, logits, returned = h, "features=4", "", "", "made"
    way = random.Random(f"results {seed}").random()
    like = [name for name in drawn.rows if name != h]
    if way < 0.08 and like:
        result, options, index = f"{like[-1]}, {h}", "features=4, output=1", "[1]"
    elif way < 0.14 and like:
        result, options, index = f"{{'mu': {h}, 'other': {like[-1]}}}", "features=4, output='mu'", "['mu']"
    elif way < 0.24:
        drawn.classifier = (
            f"nn.Sequential(nn.ReLU(), nn.Linear({drawn.rows[h]}, 3))"
            if way < 0.19
            else f"nn.Linear({drawn.rows[h]}, 3)"
        )
        options, returned, logits = "features=4, head='classifier'", "self.classifier(made)", call
        call = call.replace("module(", "module.embed(")
    text = drawn.text(takes, result, returned, first)
    group = "heads" if logits else "output" if index else "plain"
    link = ("", "") if 0.24 < way < 0.3 else None
    return Source(text, call + index, tuple(drawn.hostile), f"dict({options})", group, logits=logits, link=link)


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


class Pair(nn.Module):
    def __init__(self, left, right):
        super().__init__()
        self.lin, self.one, self.two = nn.Linear(left + right, 1), nn.Linear(left, right), nn.Bilinear(left, right, 1)

    def forward(self, left, right):
        return {pair}


class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.known = [], {{}}
        self.register_buffer("buffer", torch.zeros(()))
        {parts}

    def {name}(self, {takes}):
        {lines}
        return {result}
{more}"""
_MORE = """
    def forward(self, {takes}):
        made = self.embed({given})
        return {returned}
"""
