"""Modules that become model folders again, and what is refused."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import freshet  # noqa: E402
from freshet.gnn import module_answers  # noqa: E402
from freshet.gnn.kinds.model import load_any_model  # noqa: E402
from freshet.gnn.model import ANSWERS_FILE, SPEC_FILE, WEIGHTS_FILE, Model, save_model  # noqa: E402
from freshet.gnn.oracles import own_scale  # noqa: E402
from freshet.gnn.pyg.check import off  # noqa: E402
from freshet.gnn.readout import load_readouts  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support.graphs.models import conv, make_model  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402
from tests.support.graphs.read_convs import AttentionConv  # noqa: E402
from tests.support.graphs.torch_graphs import plain_inputs  # noqa: E402
from tests.unit.gnn.pyg import test_link_heads as link_heads  # noqa: E402

SPECS = [conv("gat_conv", 6, 4), {"type": "elu", "alpha": 1.0}, conv("pna_conv", 4, 3, aggregators=["max", "std"])]
FILES = WEIGHTS_FILE, SPEC_FILE, ANSWERS_FILE


def module_in(folder: Path) -> Any:
    """Write a model, and return it as a module."""
    save_model(make_model(2, SPECS), folder)
    return freshet.to_torch(folder)


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}


def step(module: Any, rows: Any) -> None:
    """Move the weights down the mean square of rows."""
    rows.square().mean().backward()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter -= 0.05 * parameter.grad


def test_statistics_are_buffers(tmp_path: Path) -> None:
    layers = [*SPECS, {"type": "frozen_norm", "of": "graph_norm", "channels": 3}, {"type": "batch_norm", "channels": 3}]
    save_model(make_model(1, layers), tmp_path)
    module = freshet.to_torch(tmp_path)
    assert isinstance(module, freshet.FreshetModule)
    of_graph = ["layers.2.average_degree", "layers.2.average_log_degree", "layers.3.scale", "layers.3.shift"]
    assert [name for name, _ in module.named_buffers()] == of_graph
    assert {"layers.4.scale", "layers.0.lin.weight"} < {name for name, _ in module.named_parameters()}


def test_a_copy_has_weights_of_its_own(tmp_path: Path) -> None:
    module = module_in(tmp_path / "M")
    inputs = plain_inputs(random_graph(1), edge_features=0)
    before = module(**inputs).detach()
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        step(other, other(**inputs))
        assert not torch.equal(other(**inputs), before)
        assert torch.equal(module(**inputs), before)
        assert other.model().sha256() != module.model().sha256()


def test_a_model_has_the_weights_of_its_time(tmp_path: Path) -> None:
    module = module_in(tmp_path / "M")
    model = module.model()
    step(module, module(**plain_inputs(random_graph(1), edge_features=0)))
    assert model.sha256() == load_any_model(tmp_path / "M").sha256()


def test_weights_that_are_no_numbers_are_refused_by_name(tmp_path: Path) -> None:
    module = module_in(tmp_path / "M").double()
    for value, says in ((float("nan"), "NaN or infinite"), (1e300, "past float32")):
        module.state_dict()["layers.0.att_src"][0, 0] = value
        for save in (module.save, lambda folder: freshet.export_model(module, folder)):
            with pytest.raises(freshet.ExportError, match=rf"layers\.0\.att_src \(1 of 4 values {says}\)"):
                save(tmp_path / "M2")
    assert not (tmp_path / "M2").exists()


def test_another_model_stays(tmp_path: Path) -> None:
    module = module_in(tmp_path / "M")
    module.save(tmp_path / "M")  # it is the same
    before = files_of(tmp_path / "M")
    step(module, module(**plain_inputs(random_graph(1), edge_features=0)))
    with pytest.raises(freshet.ExportError, match="has another model already, which stays as it is"):
        module.save(tmp_path / "M")
    assert files_of(tmp_path / "M") == before
    freshet.export_model(module, tmp_path / "M", overwrite=True)
    assert load_any_model(tmp_path / "M").sha256() == module.model().sha256()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("head", "lin"), ("features", 6), ("edge_types", ["a"]), ("method", "encode"), ("output", 0)),
        *(("metadata", (["a"], [])), ("mirrors", {}), ("ids", [1]), ("stats_from", 1), ("link_head", 1)),
        ("edge_features", 3),
    ],
)
def test_options_are_refused(option: str, value: Any, tmp_path: Path) -> None:
    module = module_in(tmp_path / "M")
    with pytest.raises(freshet.ExportError, match=f"^{option}: a module of freshet.to_torch takes no options"):
        freshet.export_model(module, tmp_path / "M2", **{option: value})


def test_findings_about_layers_stay(tmp_path: Path) -> None:
    freshet.export_model(pyg.GCN(6, 8, 2, 3).eval(), tmp_path / "M")
    module = freshet.to_torch(tmp_path / "M")
    module.save(tmp_path / "M2")
    freshet.export_model(module, tmp_path / "M3")
    assert b'"checks"' in files_of(tmp_path / "M")[SPEC_FILE]
    for folder in ("M2", "M3"):
        assert files_of(tmp_path / folder) == files_of(tmp_path / "M")


def test_answers_of_the_module_are_those_of_the_weights(tmp_path: Path) -> None:
    torch.manual_seed(3)
    freshet.export_model(AttentionConv(4, 3).eval(), tmp_path / "M", features=4)
    module = freshet.to_torch(tmp_path / "M")
    module.save(tmp_path / "M2")
    assert len(files_of(tmp_path / "M")) == 3
    assert files_of(tmp_path / "M2") == files_of(tmp_path / "M")
    step(module, module(torch.randn(9, 4), torch.randint(9, (2, 30))))
    module.save(tmp_path / "M3")
    model, old, new = (*(load_any_model(tmp_path / "M3"),), *(module_answers.read(tmp_path / of) for of in ("M", "M3")))
    assert isinstance(model, Model)
    assert len(old) == len(new) > 0
    for one, other in zip(old, new, strict=True):
        np.testing.assert_array_equal(one.graph.x[0], other.graph.x[0])
        assert other.rows[0].dtype == np.float64
        graph = Graph(other.graph.x[0], *other.graph.edges[0])
        assert off(other.rows, [own_scale.forward(model, graph, tolerance=1e-9)]) < 1e-9
        assert off(one.rows, [own_scale.forward(model, graph)]) > 1e-3, "answers of other weights are wrong"


def test_a_written_layer_has_no_form_in_torch(tmp_path: Path) -> None:
    written = conv("own_layer", 6, 4, code="mine.layers:GatedSum", source="0" * 64)
    save_model(make_model(1, [conv("gcn_conv", 6, 6), written]), tmp_path)
    with pytest.raises(freshet.ExportError, match=r"layers\.1 is mine\.layers:GatedSum, a freshet\.Layer: its func"):
        freshet.to_torch(tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(freshet.InputError, match=r"is no model folder: model\.json is missing"):
        freshet.to_torch(tmp_path)


@pytest.mark.parametrize("name", ["bilinear and more", "cosine", "towers", "norms", "dot", "one side"])
def test_scores_are_those_of_a_job(name: str, tmp_path: Path) -> None:
    torch.manual_seed(5)
    freshet.export_model(link_heads.Net(), tmp_path, link_head=link_heads.heads()[name].eval())
    module = freshet.to_torch(tmp_path)
    left, right = link_heads.rows(9, link_heads.W, 1), link_heads.rows(9, link_heads.W, 2)
    scores = module.scores(torch.from_numpy(left), torch.from_numpy(right))
    np.testing.assert_allclose(
        scores.detach().numpy(), load_readouts(tmp_path).link_scores().of(left, right), atol=1e-5
    )
    module.save(tmp_path / "M2")
    assert files_of(tmp_path / "M2")[WEIGHTS_FILE] == files_of(tmp_path)[WEIGHTS_FILE]


def test_scores_of_two_kinds(tmp_path: Path) -> None:
    head = torch.nn.Bilinear(6, link_heads.W, 1)
    features = {"user": 4, "item": 4}
    freshet.export_model(link_heads.OfKinds(), tmp_path, features=features, link_head={("user", "item"): head})
    module = freshet.to_torch(tmp_path)
    left, right = torch.randn(5, 6), torch.randn(5, link_heads.W)
    torch.testing.assert_close(module.scores(left, right, "user", "item"), head(left, right)[:, 0])
    with pytest.raises(
        freshet.InputError, match="no link head for 'user' and 'user'; there is one for 'user' and 'item'"
    ):
        module.scores(left, left, "user", "user")
