"""What a module does beside what its classes say is refused by name, or taken as it is: never lost without a word."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support import oracle  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402

IN = 6
LARGE = 50.0  # what rows of a random graph pass at features around 100 alone
OVER = "writes over what is read again after it"

Forward = Callable[..., Any]


class Net(nn.Module):
    """A conv without weights, one with weights and a layer, called as a test says."""

    def __init__(self, function: Forward | None = None) -> None:
        super().__init__()
        self.conv, self.weighted, self.lin = pyg.SAGEConv(IN, IN), pyg.GCNConv(IN, IN), nn.Linear(IN, IN)
        self.frozen = nn.Parameter(torch.ones(IN), requires_grad=False)
        self.function = function or (lambda m, x, e: m.lin(m.conv(x, e)))

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.function(self, x, edge_index)


def bounded(rows: Any) -> Any:
    return rows.clamp(-LARGE, LARGE)


def changed(change: Callable[[Any], Any], function: Forward | None = None) -> Callable[[], Any]:
    def make() -> Any:
        net = Net(function)
        change(net)
        return net

    return make


def patched(part: str, method: str, function: Any) -> Callable[[], Any]:
    return changed(lambda net: setattr(net.get_submodule(part), method, function))


class OwnLightGCN(pyg.LightGCN):
    def get_embedding(self, edge_index: Any, edge_weight: Any = None) -> Any:
        return 2 * super().get_embedding(edge_index, edge_weight)


class OwnSequential(pyg.Sequential):
    def forward(self, *args: Any) -> Any:
        return 2 * super().forward(*args)


class OwnLinear(nn.Linear):
    def forward(self, rows: Any) -> Any:
        return bounded(super().forward(rows))


class OwnBatchNorm(nn.BatchNorm1d):
    def forward(self, rows: Any) -> Any:
        return bounded(super().forward(rows))


class OwnJumps(nn.Module):
    def forward(self, rows: list[Any]) -> Any:
        return bounded(torch.cat(rows, -1))


def with_norm_inside() -> Any:
    module = pyg.GraphSAGE(IN, 8, 2, norm="batch_norm")
    module.norms[0].module = OwnBatchNorm(8)
    return module


def with_own_jumps() -> Any:
    module = pyg.GraphSAGE(IN, 8, 2, jk="cat")
    module.jk = OwnJumps()
    return module


def explained() -> Any:
    module = pyg.GCN(IN, 8, 2)
    module.convs[1].explain = True
    return module


def sequential(*layers: Any) -> Any:
    return pyg.Sequential("x, edge_index", [(pyg.SAGEConv(IN, IN), "x, edge_index -> h"), *layers])


def written_and_read(write: Forward) -> Callable[[], Any]:
    def function(net: Any, x: Any, edge_index: Any) -> Any:
        rows = net.conv(x, edge_index)
        write(rows, net)
        return rows + 1

    return lambda: Net(function)


def doubled(rows: Any) -> Any:
    made = 2 * rows
    rows.clamp_(-6, 6)
    return made


def swallowed(net: Any, x: Any, edge_index: Any) -> Any:
    try:
        x = bounded(x) if x.abs().max() > LARGE else x
    except torch.fx.proxy.TraceError:
        pass
    return net.conv(x, edge_index)


def set_data(rows: Any, net: Any) -> None:
    rows.data = bounded(rows)


RESIDUAL = (lambda a, b: a + b, "h, g -> x")
DEEP = {"norm": None, "act": nn.Hardtanh(-6, 6, inplace=True), "block": "res+"}
DIFFERS = "differs from the module: largest difference .* features around 100"
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "small outputs": (
        lambda: Net(lambda m, x, e: m.conv(x, e) * (3e-5 if type(x) is torch.Tensor else 1e-5)),
        "differs from the module: largest difference .* features around 1\\.",
    ),
    "forward hook": (
        changed(lambda m: m.lin.register_forward_hook(lambda part, args, out: bounded(out))),
        r"^lin: torch.nn.Linear has forward hooks \(.*lambda.*\), .* remove it before the export \(handle.remove",
    ),
    "forward pre-hook": (
        changed(lambda m: m.lin.register_forward_pre_hook(lambda part, args: (bounded(args[0]),))),
        "^lin: torch.nn.Linear has forward pre hooks",
    ),
    "message hook": (
        changed(lambda m: m.conv.register_message_forward_hook(lambda part, given, out: bounded(out))),
        "^conv: torch_geometric.nn.SAGEConv has message forward hooks",
    ),
    "propagate hook": (
        changed(lambda m: m.conv.register_propagate_forward_pre_hook(lambda part, given: None)),
        "has propagate forward pre hooks",
    ),
    "aggregate hook": (
        changed(lambda m: m.conv.register_aggregate_forward_hook(lambda part, given, out: bounded(out))),
        "has aggregate forward hooks",
    ),
    "message": (patched("conv", "message", bounded), "^conv: torch_geometric.nn.SAGEConv.message was replaced by"),
    "forward": (
        patched("conv", "forward", types.MethodType(lambda conv, x, e: x, nn.Identity())),
        "^conv: torch_geometric.nn.SAGEConv.forward was replaced by",
    ),
    "forward of a layer": (patched("lin", "forward", bounded), "^lin: torch.nn.Linear.forward was replaced by"),
    "explain": (explained, "^convs.1: torch_geometric.nn.GCNConv has explain=True"),
    "torch.jit": (
        lambda: sequential((torch.jit.script(nn.Linear(IN, 4)), "h -> x")),
        "^module_1 was made by torch.jit",
    ),
    "meta": (changed(lambda m: m.lin.to("meta")), "^lin: weight is on the device 'meta', where it has no values"),
    "own LightGCN": (lambda: OwnLightGCN(10, IN, 2), "^OwnLightGCN is a LightGCN with methods of its own"),
    "own linear inside": (patched("conv", "lin_l", OwnLinear(IN, IN)), "^conv: its lin_l is a .*OwnLinear, expected"),
    "own batch norm inside": (with_norm_inside, "^norms.0: its module is a .*OwnBatchNorm, expected torch.nn.BatchNor"),
    "own jumps inside": (with_own_jumps, r"its jk is OwnJumps\(\), expected JumpingKnowledge\('cat'\)"),
    "in place in a Sequential": (
        lambda: sequential((nn.Hardtanh(-6, 6, inplace=True), "h -> g"), RESIDUAL),
        f"^module_1 {OVER}",
    ),
    "a function in place in a Sequential": (
        lambda: sequential((torch.relu_, "h -> g"), RESIDUAL),
        rf"^module_1.* {OVER}",
    ),
    "a function that writes and gives something else": (
        lambda: sequential((doubled, "h -> g"), RESIDUAL),
        rf"clamp_ \(test_untouched.py:\d+\) {OVER}",
    ),
    "a square in place in a Sequential": (
        lambda: sequential((lambda h: h.square_(), "h -> g"), RESIDUAL),
        f"^module_1.* {OVER}",
    ),
    "rows of two layers in place": (
        lambda: sequential(
            (pyg.SAGEConv(IN, IN), "h, edge_index -> k"), (lambda a, b: a.add_(b), "h, k -> g"), RESIDUAL
        ),
        f"module_2.* {OVER}",
    ),
    "in place in DeepGCNLayer": (
        lambda: nn.ModuleList([nn.Linear(IN, IN), pyg.DeepGCNLayer(pyg.SAGEConv(IN, IN), **DEEP)]),
        f"^1.act {OVER}",
    ),
    "in place by ravel": (written_and_read(lambda h, m: h.ravel().clamp_(-5, 5)), OVER),
    "in place by swapaxes": (written_and_read(lambda h, m: h.swapaxes(0, 1).clamp_(-5, 5)), OVER),
    "in place by expand_as": (written_and_read(lambda h, m: h.expand_as(h).clamp_(-5, 5)), OVER),
    "in place by foreach": (written_and_read(lambda h, m: torch._foreach_clamp_max_([h], 5)), OVER),
    "in place by data": (written_and_read(set_data), r"test_untouched.py:\d+ sets .data of rows"),
    "a frozen parameter in place": (written_and_read(lambda h, m: m.frozen.mul_(2)), OVER),
    "a frozen parameter by foreach": (written_and_read(lambda h, m: torch._foreach_mul_([m.frozen], 2)), OVER),
    "a branch on the type": (
        lambda: Net(lambda m, x, e: (bounded if type(x) is torch.Tensor else torch.clone)(m.conv(x, e))),
        DIFFERS,
    ),
    "a branch on hasattr": (
        lambda: Net(lambda m, x, e: (torch.clone if hasattr(x, "no") else bounded)(m.conv(x, e))),
        DIFFERS,
    ),
    "a branch that is swallowed": (lambda: Net(swallowed), DIFFERS),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_changes_rows_unseen_is_refused(what: str, tmp_path: Path) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_hooks_on_all_modules_and_methods_of_classes_that_were_replaced(tmp_path: Path) -> None:
    module = pyg.GraphSAGE(IN, 8, 2)
    handle = nn.modules.module.register_module_forward_hook(lambda part, args, out: None)
    try:
        with pytest.raises(ExportError, match=r"^a hook on all modules \(.*register_module_forward_hook"):
            export_model(module, tmp_path / "m")
    finally:
        handle.remove()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(nn.ReLU, "forward", lambda self, rows: bounded(rows))
        with pytest.raises(ExportError, match=r"act: torch.nn.ReLU.forward was replaced by a function of one's own"):
            export_model(pyg.GraphSAGE(IN, 8, 2, act="relu"), tmp_path / "m")


def assert_taken(module: Any, folder: Path, *weighted: bool) -> Model:
    """Export a module, and hold the model against it on another graph, at large features too."""
    model = export_model(module, folder)
    graph = random_graph(11, width=IN)
    for size in (1, 300):
        x = size * graph.x
        given = [torch.from_numpy(x), torch.from_numpy(np.stack([graph.src, graph.dst]))]
        with torch.no_grad():
            truth = module.eval()(*given).numpy()
        made = oracle.forward(model, Graph.plain(x, graph.src, graph.dst))[-1]
        np.testing.assert_allclose(made, truth, rtol=0, atol=3e-5 * np.abs(truth).max())
    return model


def weight_normed(net: Any) -> None:
    parametrizations.weight_norm(net.lin)
    net.lin.parametrizations.weight.original0.data *= 3


def weight_normed_by_hook(net: Any) -> None:
    nn.utils.weight_norm(net.lin)
    net.lin.weight_g.data *= 3


def spectral_normed(net: Any) -> None:
    parametrizations.spectral_norm(net.lin)
    parametrizations.orthogonal(net.conv.lin_l)


def pruned(net: Any) -> None:
    prune.l1_unstructured(net.lin, "weight", 0.5)
    net.lin.weight_orig.data += 1


def relu(rows: Any) -> Any:
    return 2 * F.relu(rows)


def with_closure(net: Any) -> None:
    def again(rows: Any, times: int) -> Any:
        return rows if times == 0 or net.training else again(2 * rows, times - 1)

    net.own = lambda rows, lin=net.lin: 2 * rows if net.training else again(lin(rows), 2)


class Leaves(torch.fx.Tracer):
    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        return True


TAKEN: dict[str, Callable[[], Any]] = {
    "weight_norm": changed(weight_normed),
    "weight_norm by a hook": changed(weight_normed_by_hook),
    "spectral_norm and orthogonal": changed(spectral_normed),
    "spectral_norm by a hook": changed(lambda m: nn.utils.spectral_norm(m.lin)),
    "pruning": changed(pruned),
    "a function that is called as torch's is": lambda: sequential((relu, "h -> h")),
    "a closure over the module, and over a part": changed(with_closure, lambda m, x, e: m.own(m.conv(x, e))),
    "a forward put on one's own module": changed(
        lambda m: setattr(m, "forward", types.MethodType(lambda net, x, e: bounded(net.conv(x, e)), m))
    ),
    "own Sequential": lambda: OwnSequential("x, e", [(pyg.SAGEConv(IN, IN), "x, e -> x")]),
    "what torch.fx has made": lambda: torch.fx.GraphModule(net := Net(), Leaves().trace(net)),
    "in place, and nobody reads it": lambda: sequential(nn.Hardtanh(-6, 6, inplace=True), nn.ReLU(inplace=True)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_exported_as_it_runs(name: str, tmp_path: Path) -> None:
    module = TAKEN[name]().train()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    assert_taken(module, tmp_path)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_the_first_of_two_sequentials_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyG gives its class the forward of the last one that was made, where their module can be imported by name."""
    monkeypatch.setattr(pyg.Sequential, "forward", pyg.Sequential.forward)
    made = [sequential(), sequential((nn.Linear(IN, 4), "h -> h"))]
    for one in made:
        one._caller_module = "math"
        one._set_jittable_template(raise_on_error=True)
    for number, one in enumerate(made):
        assert_taken(one, tmp_path / str(number))


class ByName(Net):
    def forward(self, x: Any, edge_index: Any, **options: Any) -> Any:
        return self.weighted(x, edge_index, **options)


class ByPlace(Net):
    def forward(self, x: Any, edge_index: Any, *more: Any) -> Any:
        return self.weighted(x, edge_index, *more)


class Unread(Net):
    def forward(self, x: Any, edge_index: Any, *more: Any, **options: Any) -> Any:
        return self.weighted(x, edge_index)


class Unknown(Net):
    def forward(self, x: Any, edge_index: Any, **options: Any) -> Any:
        return self.weighted(x, edge_index, options.get("importance"))


def test_weights_that_come_by_args_and_kwargs_are_handed_on(tmp_path: Path) -> None:
    for kind, weighted in ((ByName, True), (ByPlace, True), (Unread, False)):
        (layer,) = assert_taken(kind(), tmp_path / kind.__name__).layers
        assert layer.edge_weights == weighted, kind  # type: ignore[union-attr]
    with pytest.raises(ExportError, match=r"Unknown.forward reads \*\*options, which may hold weights of edges"):
        export_model(Unknown(), tmp_path / "m")


CORRECT_AT_EVERY_SIZE = {
    "gat": lambda: pyg.GAT(IN, 8, 3, heads=2),
    "pna": lambda: pyg.PNA(
        *(IN, 8, 3),
        aggregators=["std", "var", "max", "sum"],
        scalers=["identity", "amplification"],
        deg=torch.arange(1, 5),
    ),
    "deviations": lambda: pyg.GraphSAGE(IN, 8, 4, aggr=["std", "var", "mean"], norm="batch_norm"),
    "gates": lambda: nn.ModuleList([pyg.ResGatedGraphConv(IN, 8), nn.Softplus(), pyg.TransformerConv(8, 4, heads=2)]),
    "rms norm": lambda: nn.ModuleList([pyg.SAGEConv(IN, 8), nn.RMSNorm(8), pyg.SuperGATConv(8, 8), nn.LogSigmoid()]),
    "powers": lambda: Net(lambda m, x, e: (m.conv(x, e) ** 2) ** 2 * m.conv(x, e)),
}


@pytest.mark.parametrize("name", CORRECT_AT_EVERY_SIZE)
def test_what_is_right_is_refused_at_no_size(name: str, tmp_path: Path) -> None:
    export_model(CORRECT_AT_EVERY_SIZE[name](), tmp_path)
