"""Heads of modules with kinds: logits are those of PyTorch Geometric, by kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.any_plan import load_any_plan, returned_of  # noqa: E402
from freshet.gnn.describe import describe_text  # noqa: E402
from freshet.gnn.kind_layers.plans import KindsPlan  # noqa: E402
from freshet.gnn.kinds.model import KindsModel, load_any_model  # noqa: E402
from freshet.gnn.oracles import whole_kinds  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.gnn.readout import Readouts  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs.hetero_modules import Layers, hetero  # noqa: E402
from tests.unit.gnn.pyg.test_kinds_export import inputs, sized  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


class Classified(nn.Module):
    """A classifier for each kind, and one for all kinds."""

    def __init__(self, *, shared: bool = False, gated: bool = False) -> None:
        super().__init__()
        self.conv, self.shared, self.one, self.gated = hetero(of.sage), shared, nn.Linear(4, 2), gated
        self.by_kind = nn.ModuleDict(
            {kind: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3)) for kind in of.WIDTHS}
        )

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        x_dict = {kind: x.tanh() for kind, x in self.conv(x_dict, edge_index_dict).items()}
        if self.gated:
            x_dict = {kind: x / (1 + x.norm(dim=-1, keepdim=True)) for kind, x in x_dict.items()}
        if self.shared:
            return {kind: self.one(x_dict[kind]) for kind in reversed(x_dict)}
        return {kind: self.by_kind[kind](x) for kind, x in x_dict.items()}


def unused() -> Any:
    module = Layers([hetero(of.sage)])
    module.classifier = nn.Linear(4, 3)
    return module


FORMS: dict[str, tuple[Callable[[], Any], Any, list[str]]] = {
    "by kind": (Classified, "by_kind", ["paper", "author"]),
    "behind functions that are run": (lambda: Classified(gated=True), "by_kind", ["paper", "author"]),
    "behind functions, one for all": (lambda: Classified(shared=True, gated=True), "one", ["author", "paper"]),
    "of one kind": (Classified, {"paper": "by_kind.paper"}, ["paper"]),
    "shared": (lambda: Classified(shared=True), "one", ["author", "paper"]),
    "of the one that is returned": (lambda: of.Hgt(6, 2, 1), "lin", ["author"]),
    "of to_hetero": (of.mag, "module_4", ["paper", "author"]),
    "that forward does not call": (unused, "classifier", ["paper", "author"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_logits(form: str, tmp_path: Path) -> None:
    make, head, kinds = FORMS[form]
    module = sized(make())
    export_model(module, tmp_path, head=head)
    model, plan = cast(KindsModel, load_any_model(tmp_path)), cast(KindsPlan, load_any_plan(tmp_path))
    graph, x, given = inputs(model, 1)
    rows = whole_kinds.forward(plan, graph)[-1]
    with torch.no_grad():
        out = module(x, given["edge_index"])
    out = out if isinstance(out, dict) else {model.out[0]: out}
    assert [kind for kind in model.out if kind in model.heads] == kinds
    readouts = Readouts(model)
    for one, name in zip(returned_of(plan), model.out, strict=True):
        found, want = rows[one.number], out[name].numpy()
        if (made := readouts.of(one.kind)) is not None:
            columns = made.columns(found)
            found = columns["logits"]
            assert found.shape[1] == made.width
            assert columns["class"].tolist() == found.argmax(1).tolist()
        if form.startswith("that"):
            want = module.classifier(out[name]).detach().numpy()
        np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-4)
    assert f"> {found.shape[1]} logits" in describe_text(tmp_path, width=300)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"venue": "one"}, "head names the kind 'venue'; the module returns 'paper', 'author'"),
        ("two", "head='two' is no submodule; there are conv, one, by_kind"),
        ("conv", "head='conv' is not the end of the module: by_kind.paper"),
    ],
)
def test_refused(head: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=f"^{message}"):
        export_model(sized(Classified()), tmp_path, head=head)
