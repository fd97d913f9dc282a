"""Prints the table of docs/measured/layers.md: NeutronRT's ten models, and what a solver says of them.

The conditions under which a layer decouples into operators are NeutronRT's, as they have to be. A layer makes a local
message of each edge, combines it with the context of its target, and sums up. Its sums may be kept by differences, and
the context combined on reading, where the conditions hold.

Source: NeutronRT, theorem 1 and table II; conditions (2) and (4) as printed there do not suffice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshet.gnn.answers import ClaimAnswer
from freshet.operators.checks.proofs.solving import NO_TARGET, ProofQuestion, ask

Array = np.ndarray
Combine = Callable[[Array, Array], Array]


def alone(z: Array, m: Array) -> Array:
    """Return a message as it is: the context is 1."""
    return m * 1


def divided(z: Array, m: Array) -> Array:
    """Return a message by the context: a mean, or a softmax."""
    return m / z


def by_root(z: Array, m: Array) -> Array:
    """Return a message by the root of the context: GCN's."""
    return m / np.sqrt(z)


def _positive(z: Array, **_: Array) -> list[Any]:
    return [z > 0]


def context_questions(combine: Combine) -> dict[str, ProofQuestion]:
    """Return what a combination with a context has to meet, by number: C3, C4 and C5 of docs/measured/layers.md."""
    one: dict[str, tuple[int, ...]] = {"z": (), "m": (), "x": ()}
    several: dict[str, tuple[int, ...]] = {"z": (), "m": (3,)}
    return {
        "C3": ProofQuestion(
            "combining each message is combining their sum", several,
            lambda z, m: combine(z, m).sum(), lambda z, m: combine(z, m.sum()), _positive,
        ),
        "C4": ProofQuestion(
            "a combined message determines the message", {"z": (), "m": (), "x": ()},
            lambda z, m, x: m, lambda z, m, x: x,
            lambda z, m, x: [z > 0, combine(z, m) == combine(z, x)],
        ),
        "C5": ProofQuestion(
            "a factor may be applied before combining", one,
            lambda z, m, x: combine(z, m) * x, lambda z, m, x: combine(z, m * x), _positive,
        ),
    }  # fmt: skip


def group_question(fold: Combine) -> ProofQuestion:
    """Return whether what an aggregate was before a message is determined by what it is after: C2, with deletions."""
    return ProofQuestion(
        "a message can be taken back", {"a": (), "b": (), "m": ()},
        lambda a, b, m: a, lambda a, b, m: b, lambda a, b, m: [fold(a, m) == fold(b, m)],
    )  # fmt: skip


def printed_fourth(combine: Combine) -> ProofQuestion:
    """Return the fourth condition as it is printed: a larger context makes a message no smaller."""
    return ProofQuestion(
        "z <= y makes combine(z, m) <= combine(y, m)", {"z": (), "y": (), "m": ()},
        lambda z, y, m: combine(z, m), lambda z, y, m: combine(y, m), lambda z, y, m: [z > 0, z <= y],
        lambda one, other: one <= other, "<=",
    )  # fmt: skip


def target_question(local: Callable[..., Array]) -> ProofQuestion:
    """Return whether a local message of a source's row, an edge's number and a target's row reads not the last."""
    shapes: dict[str, tuple[int, ...]] = {"x": (2,), "e": (), "v": (2,), "w": (2,)}
    return ProofQuestion(
        NO_TARGET, shapes,
        lambda x, e, v, w: local(x, e, v), lambda x, e, v, w: local(x, e, w),
    )  # fmt: skip


@dataclass(frozen=True)
class PaperModel:
    """A model of the papers by its operators, and the conv that Freshet has it as."""

    name: str
    conv: str
    local: Callable[..., Array]
    combine: Combine

    def answers(self) -> dict[str, ClaimAnswer | None]:
        """Return the answers about its conditions, C2 to C6."""
        asked = {"C2": group_question(lambda a, m: a + m), **context_questions(self.combine)}
        return {name: ask(one) for name, one in (asked | {"C6": target_question(self.local)}).items()}


def _leaky(x: Array) -> Array:
    return np.maximum(x, 0.2 * x)


def _cosine(x: Array, v: Array) -> Array:
    length = np.sqrt((x * x).sum() + 1) * np.sqrt((v * v).sum() + 1)  # of rows with a 1 beside: never 0
    return ((x * v).sum() + 1) / length


PAPER_MODELS = (
    PaperModel("MoNet", "GMMConv", lambda x, e, v: np.exp(-((e - 1) ** 2) / 2) * x, divided),
    PaperModel("CommNet", "comm_net_conv", lambda x, e, v: x * 1, divided),
    PaperModel("GCN", "GCNConv", lambda x, e, v: e * x, by_root),
    PaperModel("GraphSAGE", "SAGEConv", lambda x, e, v: x * 1, divided),
    PaperModel("PinSAGE", "pin_sage_conv", lambda x, e, v: e * np.maximum(2 * x + 1, 0), divided),
    PaperModel("RGCN", "RGCNConv", lambda x, e, v: 2 * x, divided),
    PaperModel("GAT", "GATConv", lambda x, e, v: np.exp(_leaky(x[0] + v[1])) * x, divided),
    PaperModel("G-GCN", "ResGatedGraphConv", lambda x, e, v: x / (1 + np.exp(-(x + v))), alone),
    PaperModel("A-GNN", "AGNNConv", lambda x, e, v: np.exp(_cosine(x, v)) * x, divided),
    PaperModel("RGAT", "RGATConv", lambda x, e, v: np.exp(_leaky(x[1] + v[0])) * 2 * x, divided),
)


def table() -> str:
    """Return the table in Markdown."""
    lines = ["| model | in Freshet | C2 | C3 | C4 | C5 | C6 | so it is |", "|---|---|---|---|---|---|---|---|"]
    for model in PAPER_MODELS:
        answers = model.answers()
        words = [one.answer if one is not None else "no answer" for one in answers.values()]
        reads = answers["C6"] is None or answers["C6"].answer != "proved"
        form = "constrained, by C6" if reads else "decoupled, by C2 to C6"
        lines.append(f"| {model.name} | `{model.conv}` | {' | '.join(words)} | {form} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
