"""Bytes that a job with `--embeddings asked` keeps, and its server, which computes the last layer of the rows read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freshet.gnn.any_plan import AnyPlan, inner_plan
from freshet.gnn.block_pass import inner_widths
from freshet.gnn.model import ModelError

ONE_KIND = "(all)"  # shown for the kind without a name


def asked_data(plan: AnyPlan, state: Mapping[str, int], last: Mapping[str, int]) -> dict[str, Any]:
    """Return the description of such a job as plain data, bytes per vertex by kind; else why the model has none.

    `state`: bytes of all layers and of features by kind; `last`: those of the last layer.
    """
    try:
        inner = inner_plan(plan)
    except ModelError as error:
        return {"refused": str(error)}
    before = zip(state, inner_widths(inner.layers), strict=True)
    return {
        "layer": len(inner.layers),
        "row_bytes_per_vertex": {kind: 4 * width for kind, width in inner.out.items()},
        "state_bytes_per_vertex": {kind: size - last.get(kind, 0) for kind, size in state.items()},
        "what_if_bytes_per_vertex": {kind: 4 * width for kind, width in before},
    }


def asked_line(data: Mapping[str, Any]) -> str:
    """Say what such a job and its server keep, or why the model has no such jobs."""
    if "refused" in data:
        return f"freshet run --embeddings asked: {data['refused']}"
    before, layer = data["what_if_bytes_per_vertex"], data["layer"]
    of_what_if = f"; what if has it keep up to {_bytes(before)} of earlier layers' rows" if any(before.values()) else ""
    return (
        f"freshet run --embeddings asked: the job keeps {_bytes(data['state_bytes_per_vertex'])}, and writes rows of "
        f"layer {layer}, {_bytes(data['row_bytes_per_vertex'])}; its server keeps the graph, and computes layer "
        f"{layer + 1} of the rows that are read{of_what_if}"
    )


def _bytes(by_kind: Mapping[str, int]) -> str:
    alone = [*by_kind] == [""]
    sizes = [f"{size:,}" if alone else f"{kind or ONE_KIND} {size:,}" for kind, size in by_kind.items()]
    return f"{', '.join(sizes)} bytes per vertex"
