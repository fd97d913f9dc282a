"""Prints the table of docs/measured/layers.md: NeutronRT's ten models, and what a solver says of them."""

from __future__ import annotations

from freshet.operators.checks.proofs.decoupling import PAPER_MODELS


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
