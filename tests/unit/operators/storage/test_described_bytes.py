"""Bytes that `freshet model describe` prints are those of the tables of a Storage, by vertex and by edge."""

from __future__ import annotations

from pathlib import Path

from freshet.gnn.describe import describe_data
from freshet.gnn.model import save_model
from freshet.gnn.plan import compile_plan
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.shape import LayerShape
from freshet.state.task_parts import TaskParts
from tests.support.graphs.models import all_small_models

OF_EDGES = {"out.pool", "out.weight", "in.pool", "in.weight", "edge.type", "edge.attr"}
OF_CONTEXTS = {"count", "degree", "loop", "loops"}
OF_GRAPH = {"key", "flags", "home", "out_count", "out_degree", "print_seed"}
LISTS = ("out.", "in.", "edge.", "replica")


def test_described_bytes_are_those_of_a_row_in_all_models(tmp_path: Path) -> None:
    layers = 0
    for name, make in all_small_models().items():
        if not name.endswith("-narrowing") and "attributes" not in name:
            continue  # those are of the same layers
        model = make()
        save_model(model, tmp_path)
        plan, told = compile_plan(model), describe_data(tmp_path)
        for number, (layer, says) in enumerate(zip(plan.layers, told["layers"], strict=True), 1):
            following = plan.layers[number] if number < len(plan.layers) else None
            core = LayerStorage(LayerShape(0, TaskParts.dealt(1, 1), number, layer, following))
            rows = {table.name: table.dtype.itemsize * (table.width or 1) for table in core.tables}
            assert says["state_bytes_per_edge"] == sum(rows[one] for one in OF_EDGES & rows.keys()), (name, number)
            values = {one: size for one, size in rows.items() if not one.startswith(LISTS) and one not in OF_GRAPH}
            if not (layer.reads_context or layer.source_scaled):
                values = {one: size for one, size in values.items() if one not in OF_CONTEXTS}
            assert says["state_bytes_per_vertex"] == sum(values.values()), (name, number)
            layers += 1
        assert told["state_bytes_per_edge"] == sum(one["state_bytes_per_edge"] for one in told["layers"])
    assert layers > 80
