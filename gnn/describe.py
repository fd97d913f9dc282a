"""Describes a model: what each layer does in the job, what it costs and what it ignores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from freshet.gnn.block_pass import inner_widths
from freshet.gnn.declarations import AnyLayer, Conv, EdgeConv
from freshet.gnn.describing.asked import asked_data, asked_line
from freshet.gnn.describing.kinds import kinds_data, kinds_group
from freshet.gnn.describing.words import (
    APPROXIMATE,
    MESSAGES_BYTES,
    OF_A_KEY,
    OUT_EDGES,
    checks_lines,
    edge_bytes,
    key_bytes,
    label,
    pair_line,
    pair_steps,
    weights_text,
    what_if_line,
    work_on_edges,
)
from freshet.gnn.kinds.model import KindsModel, load_any_model
from freshet.gnn.layers.base import LayerPlan
from freshet.gnn.model import Model
from freshet.gnn.plan import Plan, compile_plan

_CONTEXT_BYTES = 16  # count int32, degree float64, self-loop float32
PRINT_BYTES = 16  # in place of a row that can be made again


def describe_data(folder: str | Path) -> dict[str, Any]:
    """Return the description of a model folder as plain data, ready for JSON; of one with kinds as `kinds_data`.

    Units: state bytes are per vertex, in the operator that owns it; a vertex replicated in another part adds
    `replica_bytes` there, and slots come on top. Those per edge are of the part that has it: entries of the layer's
    lists, which have room for up to twice as many, and attributes; those of its key come on top where edges have keys.
    Raises: ModelError as load_model.
    """
    model = load_any_model(folder)
    if isinstance(model, KindsModel):
        return kinds_data(str(folder), model)
    plan = compile_plan(model)
    layers = [_layer_data(i, spec, plan) for i, spec in enumerate(_convs(model), 1)]
    state = plan.features.row_bytes + sum(layer["state_bytes_per_vertex"] for layer in layers)
    return {
        "model": str(folder),
        "sha256": plan.sha256,
        "features": plan.features.width,
        "embedding": plan.out_width,
        "logits": plan.head_width or None,
        "edge_types": plan.edge_types,
        **({"edge_features": plan.features.edge_width} if plan.features.edge_width else {}),
        **({"type_columns": plan.features.types} if plan.features.types else {}),
        **({"edge_categories": list(plan.features.categories)} if plan.features.categories else {}),
        "approximate": model.is_approximate,
        "parameters": int(sum(weight.size for weight in model.weights.values())),
        "hops": len(layers),
        "multiplications_per_row": sum(layer["multiplications_per_row"] for layer in layers),
        "multiplications_per_edge": sum(layer["multiplications_per_edge"] for layer in layers),
        "layers": layers,
        "head": [label(layer) for layer in model.head],
        **({"link_head": pair_steps(model.link_head)} if model.link_head else {}),
        "state_bytes_per_vertex": state,
        "state_bytes_per_edge": sum(layer["state_bytes_per_edge"] for layer in layers),
        "key_bytes_per_edge": sum(layer["key_bytes_per_edge"] for layer in layers),
        "what_if_bytes_per_vertex": 4 * inner_widths(plan.layers)[0],
        "asked": asked_data(plan, {"": state}, {"": layers[-1]["state_bytes_per_vertex"]}),
        "checks": [one.as_json() for one in model.checks],
    }


def describe(folder: str | Path) -> Group:
    """Return the description of a model folder for `rich.print`: a table of its layers and what follows from them.

    Raises: ModelError as load_model.
    """
    data = describe_data(folder)
    if "kinds" in data:
        return kinds_group(data)
    table = Table(show_lines=True)
    for column in ("layer", "aggregate", "bytes/vertex", "bytes/edge", "what it does"):
        table.add_column(column, justify="right" if "bytes" in column else "left", overflow="fold")
    for layer in data["layers"]:
        dense = [f"before: {', '.join(layer['before'])}"] if layer["before"] else []
        dense += [f"each message: {', '.join(layer['on_each_edge'])}"] if layer["on_each_edge"] else []
        dense += [f"then: {', '.join(layer['then'])}"] if layer["then"] else []
        table.add_row(
            f"{layer['layer']} {layer['type']}\n{layer['in_width']} > {layer['out_width']}",
            f"{layer['aggregate']}\n{layer['message_width']} wide\n{layer['class']}",
            f"{layer['state_bytes_per_vertex']:,}",
            f"{layer['state_bytes_per_edge']:,}",
            Text("; ".join([*dense, layer["edge_weights"], *layer["incremental"]])),
        )
    return Group(Text(_headline(data)), table, Text(_footer(data)))


def describe_text(folder: str | Path, *, width: int = 100) -> str:
    """Return the description of a model folder as plain text of the given width.

    Raises: ModelError as load_model.
    """
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(describe(folder))
    return capture.get()


def _headline(data: dict[str, Any]) -> str:
    types = ", ".join(data["edge_types"]) or "none (a type is only part of an edge's identity)"
    types += " (read as columns of attributes)" if data.get("type_columns") else ""
    logits = f" > {data['logits']} logits ({', '.join(data['head'])})" if data["logits"] else ""
    return (
        f"{data['model']}\n{data['features']} features > embedding of {data['embedding']}{logits}, "
        f"{len(data['layers'])} layers, {data['parameters']:,} parameters\nedge types: {types}\n{_attributes(data)}"
        f"{pair_line(data.get('link_head', ()))}sha256 {data['sha256']}"
    )


def _attributes(data: dict[str, Any]) -> str:
    """Say how wide attributes of edges are, and what they take, where layers read any."""
    if "edge_features" not in data:
        return ""
    layers = (layer for layer in data["layers"] if layer["edge_features"])
    kept = ", ".join(f"{layer['state_bytes_per_edge']} in layer {layer['layer']}" for layer in layers)
    types = data.get("type_columns", 0)
    given = f"{data['edge_features'] - types} numbers" + (f", and a column for each of {types} types" if types else "")
    counts = [f"{count} in place {place}" for place, count in enumerate(data.get("edge_categories", ())) if count]
    given += f", of which some number categories ({', '.join(counts)})" if counts else ""
    return f"edge attributes: {given}; an edge with them takes {kept} (bytes)\n"


def _footer(data: dict[str, Any]) -> str:
    total = data["state_bytes_per_vertex"]
    state = (
        f"state: {total:,} bytes per vertex with its features, {total:,} MB per million vertices; "
        f"{data['state_bytes_per_edge']:,} bytes per edge, and room for more; of an edge with a key "
        f"{data['key_bytes_per_edge']:,} bytes more, and {OF_A_KEY}"
    )
    hops = data["hops"]
    reached = sum(OUT_EDGES**k for k in range(1, hops + 1))
    lines = [
        f"hops: a change goes on to vertices up to {hops} edges away, {reached:,} of them where each has {OUT_EDGES} "
        f"out-edges; a row computed anew in all layers takes {data['multiplications_per_row']:,} multiplications",
        state,
        what_if_line(f"{data['what_if_bytes_per_vertex']:,}"),
        asked_line(data["asked"]),
    ]
    if data["multiplications_per_edge"]:
        lines[0] += f", and {data['multiplications_per_edge']:,} for the messages of an edge"
    if data["approximate"]:
        lines.insert(0, APPROXIMATE)
    return "\n".join([*lines, *checks_lines(data["checks"])])


def _convs(model: Model) -> list[tuple[Conv, list[AnyLayer], list[AnyLayer]]]:
    """Return each conv with the dense layers before it (the first conv only) and after it."""
    at = [i for i, layer in enumerate(model.layers) if isinstance(layer, Conv)]
    ends = [*at[1:], len(model.layers)]
    found: list[tuple[Conv, list[AnyLayer], list[AnyLayer]]] = []
    for number, (i, end) in enumerate(zip(at, ends, strict=True)):
        conv = model.layers[i]
        assert isinstance(conv, Conv)  # by the choice of `at`
        found.append((conv, model.layers[:i] if number == 0 else [], model.layers[i + 1 : end]))
    return found


def _layer_data(number: int, spec: tuple[Conv, list[AnyLayer], list[AnyLayer]], plan: Plan) -> dict[str, Any]:
    conv, before, after = spec
    layer = plan.layers[number - 1]
    own = layer.self_width
    context = _CONTEXT_BYTES if layer.reads_context or layer.source_scaled else 0
    context += 0 if layer.synopsis.is_linear else MESSAGES_BYTES
    messages, per_edge = work_on_edges(conv, layer.network, layer.synopsis)
    message, synopsis, out = (
        4 * layer.message_width,
        layer.synopsis.state_bytes(layer.message_width),
        PRINT_BYTES if layer.epilogue is not None and layer.epilogue.makes_again else 4 * layer.out_width,
    )
    return {
        "layer": number,
        "type": layer.name,
        "options": conv.model_dump(mode="json", exclude={"type", "in_channels", "out_channels", "nn", "pre"}),
        "before": [label(one) for one in before],
        "on_each_edge": messages,
        "then": [label(one) for one in [*([] if isinstance(conv, EdgeConv) else getattr(conv, "nn", [])), *after]],
        "in_width": layer.in_width,
        "out_width": layer.out_width,
        "message_width": layer.message_width,
        "self_width": own,
        "carried_width": layer.carried_width,
        "aggregate": layer.synopsis.name,
        "class": layer.synopsis.algebra,
        "edge_weights": weights_text(conv, layer.edge),
        "edge_features": layer.edge.attributes,
        "state_bytes_per_edge": edge_bytes(layer.edge),
        "key_bytes_per_edge": key_bytes(layer.edge),
        "incremental": _incremental(layer),
        "multiplications_per_row": sum(one.multiplications for one in (*before, conv, *after)) - per_edge,
        "multiplications_per_edge": per_edge,
        "replica_bytes": message,
        "state_bytes_per_vertex": synopsis + message + 4 * own + out + context,
    }


def _incremental(layer: LayerPlan) -> list[str]:
    parts = list(layer.synopsis.changes)
    if layer.source_scaled:
        parts.append("a changed degree re-sends the vertex")
    if layer.reads_context and not layer.source_scaled:
        parts.append("a changed in-degree re-reads the sum")
    if layer.reads_self:
        parts.append("a changed vertex updates itself")
    if layer.edge.skip_loops:
        parts.append("self-loops are kept apart")
    if layer.carried_width:
        parts.append(f"{layer.carried_width} columns of earlier layers go with the vertex's own row")
    return parts
