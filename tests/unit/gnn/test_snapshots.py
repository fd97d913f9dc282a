"""What `freshet model describe` prints, and what a plan is made of, word by word: a change of either is meant.

tests/data/models/NAME.txt is the text of a model. Where a change is right, take the file away and run the test twice:
it writes the file that is missing, and fails that once.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from freshet.gnn.describe import describe_text
from freshet.gnn.model import Model, save_model
from freshet.gnn.plan import compile_plan
from tests.support.graphs.models import conv, linear, make_model

FOLDER = Path(__file__).resolve().parents[2] / "data" / "models"
RELU = {"type": "relu"}
NORM = {"type": "batch_norm", "channels": 5}
SHOWN = ("in_width", "message_width", "self_width", "root_width", "carried_width", "synopsis_width", "out_width")
MODELS = {
    "graph-sage": [conv("sage_conv", 6, 5), NORM, RELU, conv("sage_conv", 5, 4, aggr="max")],
    "gcn-with-head": [linear(6, 5), RELU, conv("gcn_conv", 5, 5), RELU, conv("gcn_conv", 5, 4)],
    "attention": [conv("gat_conv", 6, 4, heads=2), RELU, conv("gatv2_conv", 4, 4, heads=2, concat=False)],
    "moments-and-networks": [conv("graph_conv", 6, 5, aggr="std"), RELU, conv("edge_conv", 5, 4)],
    "gates-and-typed-edges": [conv("res_gated_graph_conv", 6, 5), RELU, conv("graph_conv", 5, 4, edge_weights=False)],
}


def model_of(name: str) -> Model:
    head = [linear(4, 3)] if name.endswith("head") else []
    return make_model(0, MODELS[name], head=head, edge_types=["a", "b"] if "typed" in name else [])


def plan_text(model: Model) -> str:
    """Kinds, widths and flags of a plan's layers."""
    plan = compile_plan(model)
    lines = [f"plan: {plan.features.width} > {plan.out_width}, logits {plan.head_width}, edge types {plan.edge_types}"]
    for number, layer in enumerate(plan.layers, 1):
        lines.append(f"  {number} {type(layer).__name__}, synopsis {type(layer.synopsis).__name__}")
        lines.append("    " + ", ".join(f"{name} {getattr(layer, name)}" for name in SHOWN))
        flags = {name: getattr(of, name) for of in (layer, layer.edge) for name in dir(of) if not name.startswith("_")}
        lines.append("    " + (", ".join(sorted(name for name, value in flags.items() if value is True)) or "no flag"))
    return "\n".join(lines)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_explained_as_ever(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    save_model(model, tmp_path / "M")
    text = describe_text(tmp_path / "M").replace(str(tmp_path / "M"), "M")
    text = re.sub(r"sha256 \w{64}", "sha256 …", text)
    found = "\n".join(line.rstrip() for line in f"{text}\n{plan_text(model)}\n".splitlines()) + "\n"
    file = FOLDER / f"{name}.txt"
    if not file.exists():
        FOLDER.mkdir(exist_ok=True)
        file.write_text(found)
        pytest.fail(f"{file} was missing; it is there now, to be read and committed")
    assert found == file.read_text()
