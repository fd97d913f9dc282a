"""What export writes, where it does not, and how it says why: on one line, and without overwriting unasked."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch_geometric import nn as pyg

import freshet
from freshet.gnn.model import load_model
from freshet.gnn.pyg.importing import import_model
from freshet.gnn.pyg.steps import ExportError
from tests.unit.test_imports import ROOT


def files_of(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def test_another_model_is_not_overwritten_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same one is written once more; what is no model is left, too."""
    folder, first, other = tmp_path / "M", pyg.GraphConv(2, 3), pyg.SAGEConv(2, 4)
    freshet.export_model(first, folder)
    before = files_of(folder)
    with pytest.raises(ExportError, match=r"M has another model already, .* overwrite=True \(freshet .*--overwrite\)"):
        freshet.export_model(other, folder)
    assert files_of(folder) == before
    freshet.export_model(first, folder)
    assert files_of(folder) == before
    torch.save(other.state_dict(), tmp_path / "w.pt")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "made_for_writing.py").write_text("from torch_geometric.nn import SAGEConv\n")
    given = "made_for_writing:SAGEConv(2, 4)", tmp_path / "w.pt", folder
    with pytest.raises(ExportError, match="M has another model already"):
        import_model(*given)
    assert (
        import_model(*given, overwrite=True).sha256() == load_model(folder).sha256() != load_model_of(before, tmp_path)
    )
    (folder / "model.json").unlink()
    with pytest.raises(ExportError, match=r"M has model.safetensors already, which stays as it is"):
        freshet.export_model(first, folder)
    freshet.export_model(first, folder, overwrite=True)
    assert files_of(folder) == before


def load_model_of(files: dict[str, bytes], folder: Path) -> str:
    (folder / "of files").mkdir()
    for name, data in files.items():
        (folder / "of files" / name).write_bytes(data)
    return load_model(folder / "of files").sha256()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "M").write_text("a file")
    with pytest.raises(ExportError, match=r"M cannot be written: .*; name a new or empty folder"):
        freshet.export_model(pyg.GraphConv(2, 3), tmp_path / "M")


class Failing(nn.Module):
    """Raises an error that is as long as its parts and weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.parts = pyg.GCNConv(4, 4), nn.ModuleList(nn.Linear(64, 64 + k) for k in range(60))

    def forward(self, x: Any, edge_index: Any) -> Any:
        msg = f"cannot use {self} with {self.parts[0].weight}"
        raise RuntimeError(msg)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "an error of the module": (Failing, "RuntimeError: cannot use Failing.*characters.*Freshet takes layers"),
    "a declaration of no width": (lambda: nn.ModuleList([pyg.GCNConv(4, 0)]), "0: out_channels: Input should be"),
    "averaged weights": (lambda: AveragedModel(pyg.GCN(4, 4, 2)), "AveragedModel wraps the module .* its .module$"),
    "no module": (lambda: "M", "takes a torch.nn.Module, got str"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_line(name: str, tmp_path: Path) -> None:
    make, words = REFUSED[name]
    with pytest.raises(ExportError, match=words) as refused:
        freshet.export_model(make(), tmp_path / "M")
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 1_100
    assert "During handling" not in "".join(traceback.format_exception(refused.value))
    assert not (tmp_path / "M").exists()


def test_a_warning_of_pytorch_geometric_about_itself_is_not_passed_on() -> None:
    """Others are, of the same kind, too."""
    code = "import warnings, freshet.gnn.pyg; warnings.warn('mine', FutureWarning)"
    run = subprocess.run(
        [sys.executable, "-W", "default", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert "FutureWarning: mine" in run.stderr and "torch.jit.script" not in run.stderr
