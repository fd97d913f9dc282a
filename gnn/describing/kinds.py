"""Describes a model with kinds: what vertices of each kind keep, and what each relation sums up."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from freshet.gnn.block_pass import inner_widths
from freshet.gnn.declarations import Conv, EdgeConv
from freshet.gnn.describing.asked import ONE_KIND, asked_data, asked_line
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
from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.kind_layers.lines import Stretch, stretches_of
from freshet.gnn.kind_layers.plans import KindPlan, KindsLayer, RelationPlan
from freshet.gnn.kinds.model import KindsModel
from freshet.kinds import some_names

_COUNT_BYTES = 4  # int32, of the in-edges of a relation
_DEGREE_BYTES = 16  # of a vertex in a relation: number of in-edges, sum of their weights, weight of the self-loop
_SHOWN_RELATIONS = 20  # in a cell of the table


def kinds_data(folder: str, model: KindsModel) -> dict[str, Any]:
    """Return the description of a model with kinds as plain data, ready for JSON.

    Layers have what the returned kinds need. Units: state bytes are per vertex of a kind, in the operator that owns it;
    those of a relation are of each of its targets, and are among those of that kind. Those per edge are of the part
    that has it, as without kinds.
    """
    plan, stretches = compile_kinds(model), stretches_of(model)
    pairs = [{"left": one.left, "right": one.right, "steps": pair_steps(one)} for one in model.link_heads]
    layers = [_layer_data(model, stretches, n, layer) for n, layer in enumerate(plan.layers, 1)]
    features = dict(zip(model.kinds, (4 * width for width in plan.row_widths), strict=True))
    kept = [layer["kinds"] for layer in layers]
    state = {
        kind: own + sum(found[kind]["state_bytes_per_vertex"] for found in kept if kind in found)
        for kind, own in features.items()
    }
    last = {kind: one["state_bytes_per_vertex"] for kind, one in kept[-1].items()}
    return {
        "model": folder,
        "sha256": plan.sha256,
        "kinds": dict(model.kinds),
        **({"learned": model.model_dump(mode="json")["learned"]} if model.learned else {}),
        "relations": [
            relation.model_dump(mode="json") | {"name": name}
            for relation, name in zip(model.relations, model.edge_types, strict=True)
        ],
        "embeddings": dict(plan.out),
        **({"logits": {kind: head.width for kind, head in plan.heads.items()}} if plan.heads else {}),
        **({"heads": {kind: [label(one) for one in head] for kind, head in model.heads.items()}} if plan.heads else {}),
        **({"link_heads": pairs} if pairs else {}),
        "approximate": model.is_approximate,
        "parameters": model.parameters,
        "hops": len(layers),
        "layers": layers,
        "state_bytes_per_vertex": state,
        "what_if_bytes_per_vertex": dict(
            zip(model.kinds, [4 * width for width in inner_widths(plan.layers)], strict=True)
        ),
        "asked": asked_data(plan, state, last),
        "checks": [one.as_json() for one in model.checks],
    }


def kinds_group(data: dict[str, Any]) -> Group:
    """Return the description for `rich.print`: a table of relations and kinds by layer, and what follows from them."""
    table = Table(show_lines=True)
    for column in ("layer", "of", "aggregate", "bytes/\nvertex", "bytes/\nedge", "what it does"):
        table.add_column(column, justify="right" if "bytes" in column else "left", overflow="fold")
    for layer in data["layers"]:
        alike: dict[tuple[str, ...], list[str]] = {}
        for one in layer["relations"]:
            ends, *shared = _relation_cells(one)
            alike.setdefault(tuple(shared), []).append(ends)
        for (conv, *rest), relations in alike.items():
            table.add_row(str(layer["layer"]), "\n".join([*_first(relations), conv]), *rest)
        for kind, one in layer["kinds"].items():
            words = [f"before: {', '.join(one['before'])}"] if one["before"] else []
            words += [f"then: {', '.join(one['then'])}"] if one["then"] else []
            sent = f"sends {one['message_width']}, keeps {one['self_width']}"
            cells = f"{kind or ONE_KIND}\n{one['in_width']} > {one['out_width'] or 'none'}", one["aggregate"]
            bytes_ = f"{one['state_bytes_per_vertex']:,}"
            table.add_row(str(layer["layer"]), *cells, bytes_, "", Text("; ".join([*words, sent, *one["incremental"]])))
    return Group(Text(_headline(data)), table, Text(_footer(data)))


def _relation_cells(one: dict[str, Any]) -> tuple[str, ...]:
    """Return the ends of a relation, its conv, and the cells of the table that relations of one conv may share."""
    inside = [f"each message: {', '.join(one['on_each_edge'])}"] if one["on_each_edge"] else []
    inside += [f"then: {', '.join(one['then'])}"] if one["then"] else []
    return (
        f"{one['source'] or ONE_KIND} > {one['relation']} > {one['target'] or ONE_KIND}",
        one["type"],
        f"{one['aggregate']}\n{one['message_width']} wide\n{one['class']}",
        f"{one['state_bytes_per_vertex']:,}",
        f"{one['state_bytes_per_edge']:,}",
        "; ".join([*inside, one["edge_weights"], *one["incremental"]]),
    )


def _first(relations: list[str]) -> list[str]:
    """Return the first relations of many, and how many more there are."""
    more = len(relations) - _SHOWN_RELATIONS
    return [*relations[:_SHOWN_RELATIONS], *([f"and {more} more"] if more > 0 else [])]


def _headline(data: dict[str, Any]) -> str:
    kinds = ", ".join(f"{kind or ONE_KIND} {width}" for kind, width in data["kinds"].items())
    logits, heads = data.get("logits", {}), data.get("heads", {})
    out = ", ".join(
        f"{kind or ONE_KIND} {width}"
        + (f" > {logits[kind]} logits ({', '.join(heads[kind])})" if kind in logits else "")
        for kind, width in data["embeddings"].items()
    )
    names = [one["name"] for one in data["relations"]]
    relations = ", ".join(_relation_text(one, names) for one in data["relations"])
    learned = ", ".join(
        f"{kind or ONE_KIND} {sum(one['rows'].values())} of {one['count']:,} ids"
        for kind, one in data.get("learned", {}).items()
    )
    kinds += f"; learned rows: {learned}" if learned else ""
    links = data.get("link_heads", ())
    pairs = "".join(
        pair_line(one["steps"], f" of {one['left']} and {one['right']}" if one["left"] else "") for one in links
    )
    return (
        f"{data['model']}\nfeatures by kind: {kinds}; embeddings: {out}; {data['hops']} layers, "
        f"{data['parameters']:,} parameters\nrelations: {relations}\n"
        f"{pairs}sha256 {data['sha256']}"
    )


def _relation_text(one: dict[str, Any], names: list[str]) -> str:
    text = one["name"]
    if "edge_features" in one:
        text += f" (attributes of {one['edge_features']} numbers)"
    return text + (f" (follows {names[one['mirrors']]})" if "mirrors" in one else "")


def _footer(data: dict[str, Any]) -> str:
    kept = ", ".join(f"{kind or ONE_KIND} {size:,}" for kind, size in data["state_bytes_per_vertex"].items())
    hops = data["hops"]
    reached = sum(OUT_EDGES**k for k in range(1, hops + 1))
    lines = [APPROXIMATE] if data["approximate"] else []
    lines.append(
        f"hops: a change goes on to vertices up to {hops} edges away, {reached:,} of them where each has {OUT_EDGES} "
        f"out-edges"
    )
    keys = sorted({one["key_bytes_per_edge"] for layer in data["layers"] for one in layer["relations"]})
    lines.append(f"state: bytes per vertex with its features: {kept}; edges and slots come on top")
    inner = ", ".join(f"{kind or ONE_KIND} {size:,}" for kind, size in data["what_if_bytes_per_vertex"].items())
    lines += [what_if_line(inner), asked_line(data["asked"])]
    if keys:
        each = " or ".join(map(str, keys))
        lines.append(f"of an edge with a key {each} bytes more in each layer that reads it, and {OF_A_KEY}")
    return "\n".join([*lines, *checks_lines(data["checks"])])


def _layer_data(model: KindsModel, stretches: list[Stretch], number: int, layer: KindsLayer) -> dict[str, Any]:
    stretch = stretches[number]
    convs = {one.relation: one.conv for _, one in stretch.there(model)}
    relations = [_relation_data(model, convs[plan.number], plan) for plan in layer.relations]
    kinds = {}
    for kind, plan in zip(model.kinds, layer.kinds, strict=True):
        if plan is not None:
            before = [label(one.layer) for one in stretches[0].layers[kind]] if number == 1 else []
            then = [label(one.layer) for one in stretch.layers[kind]]
            into = [relations[place] for place in plan.relations]
            assert stretch.conv is not None  # it begins the layer
            kinds[kind] = _kind_data(plan, stretch.conv.aggr, into) | {"before": before, "then": then}
    return {"layer": number, "kinds": kinds, "relations": relations}


def _kind_data(plan: KindPlan, aggr: str, into: list[dict[str, Any]]) -> dict[str, Any]:
    own = 4 * (plan.message_width + plan.self_width + plan.out_width)
    aggregate = f"{aggr} of {len(into)} relations" if len(into) > 1 else ", ".join(one["relation"] for one in into)
    parts = ["a changed vertex updates itself"] if plan.reads_self and plan.updates else []
    parts += [f"{plan.carried_width} columns of earlier layers go with its own row"] if plan.carried_width else []
    return {
        "in_width": plan.in_width,
        "out_width": plan.out_width,
        "message_width": plan.message_width,
        "self_width": plan.self_width,
        "carried_width": plan.carried_width,
        "aggregate": aggregate,
        "incremental": parts,
        "replica_bytes": 4 * plan.message_width,
        "state_bytes_per_vertex": own + sum(one["state_bytes_per_vertex"] for one in into),
    }


def _relation_data(model: KindsModel, conv: Conv, plan: RelationPlan) -> dict[str, Any]:
    relation, messages = model.relations[plan.number], work_on_edges(conv, plan.network, plan.synopsis)
    parts = list(plan.synopsis.changes)
    if (many := len(plan.numbers)) > 1:
        parts.append(f"these are {many} relations; a vertex has the state once for each of which it has in-edges")
    parts += ["a changed degree re-sends the vertex"] if plan.conv.sends_degrees else []
    parts += ["a changed in-degree re-reads the sum"] if plan.reads_count else []
    parts += ["self-loops are kept apart"] if plan.edge.skip_loops else []
    counts = (_COUNT_BYTES if plan.reads_count else 0) + (0 if plan.synopsis.is_linear else MESSAGES_BYTES)
    counts += _DEGREE_BYTES * (plan.conv.reads_degrees + plan.conv.sends_degrees)  # also where it is sent from
    left_out = {"type", "in_channels", "target_channels", "out_channels", "nn"}
    return {
        "relation": some_names([model.edge_types[number] for number in plan.numbers]),
        "source": relation.source,
        "target": relation.target,
        "type": plan.name,
        "options": conv.model_dump(mode="json", exclude=left_out),
        "on_each_edge": messages[0],
        "then": [label(one) for one in ([] if isinstance(conv, EdgeConv) else getattr(conv, "nn", []))],
        "message_width": plan.message_width,
        "target_width": plan.target_width,
        "aggregate": plan.synopsis.name,
        "class": plan.synopsis.algebra,
        "edge_weights": weights_text(conv, plan.edge),
        "incremental": parts,
        "multiplications_per_edge": messages[1],
        "edge_features": plan.edge.attributes,
        "state_bytes_per_edge": edge_bytes(plan.edge),
        "key_bytes_per_edge": key_bytes(plan.edge),
        "state_bytes_per_vertex": plan.synopsis.state_bytes(plan.message_width) + counts,
    }
