"""Factory and weights file become a model folder; nothing in the file is run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from safetensors.torch import save_file  # noqa: E402

from freshet.gnn.model import load_model  # noqa: E402
from freshet.gnn.pyg.export import ExportError  # noqa: E402
from freshet.gnn.pyg.importing import build_module, import_model  # noqa: E402

CODE = """
from torch_geometric.nn import GraphSAGE

def build():
    return GraphSAGE(6, 8, 2, 3)

class Holder:
    build = staticmethod(build)

number = lambda: 3
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "factory_for_tests.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "factory_for_tests:build"


def test_weights_in_every_form(factory: str, tmp_path: Path) -> None:
    module = build_module(factory)
    state = module.state_dict()
    save_file(state, tmp_path / "w.safetensors")
    torch.save(state, tmp_path / "w.pt")
    torch.save({"epoch": 3, "model_state_dict": state}, tmp_path / "nested.pt")
    found = {
        import_model(factory, tmp_path / name, tmp_path / "out" / name, edge_types=["a"]).sha256()
        for name in ("w.safetensors", "w.pt", "nested.pt")
    }
    assert len(found) == 1
    model = load_model(tmp_path / "out" / "w.pt")
    assert torch.equal(torch.from_numpy(model.weights["layers.0.lin_l.weight"]), state["convs.0.lin_l.weight"])
    assert model.edge_types == ["a"]


class Evil:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("was_run",)


def test_a_file_with_code_is_refused_and_not_run(factory: str, tmp_path: Path) -> None:
    torch.save({"weight": Evil()}, tmp_path / "evil.pt")
    (tmp_path / "evil2.pt").write_bytes(pickle.dumps(Evil()))
    torch.save(build_module(factory), tmp_path / "whole.pt")
    for name in ("evil.pt", "evil2.pt", "whole.pt"):
        with pytest.raises(ExportError, match="holds more than tensors, or is no torch file"):
            import_model(factory, tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "was_run").exists()


def test_what_does_not_fit_is_named(factory: str, tmp_path: Path) -> None:
    torch.save({"convs.0.lin_l.weight": torch.zeros(8, 6)}, tmp_path / "part.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "w.txt").write_text("")
    (tmp_path / "w.safetensors").write_text("no")
    cases = {
        ("factory_for_tests:build", "part.pt"): "part.pt does not fit the module.*Missing key",
        ("factory_for_tests:build", "list.pt"): "holds a list, expected a state dict",
        ("factory_for_tests:build", "w.txt"): r"read from \.safetensors or \.pt, got \.txt",
        ("factory_for_tests:build", "w.safetensors"): "not a safetensors file",
        ("factory_for_tests:build", "none.pt"): "no such file",
        ("factory_for_tests", "part.pt"): "expected package.module:factory",
        ("factory_for_tests:nothing", "part.pt"): "cannot be imported",
        ("no_such_package_x:build", "part.pt"): "cannot be imported: No module named 'no_such_package_x'",
        ("factory_for_tests:number", "part.pt"): "gives a int, expected a torch.nn.Module",
    }
    for (target, name), message in cases.items():
        with pytest.raises(ExportError, match=f"(?s){message}"):
            import_model(target, tmp_path / name, tmp_path / "out")


def test_a_factory_may_be_an_attribute_of_a_class(factory: str) -> None:
    assert isinstance(build_module("factory_for_tests:Holder.build"), torch.nn.Module)
