"""What a forward does beside calling layers: it writes in place, asks what it was given, and names its parameters."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric import nn as pyg

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.pyg.export import ExportError, export_model


def module(forward: Callable[..., Any], **parts: nn.Module) -> nn.Module:
    """A module with these submodules and this forward, which gets it as `s`."""
    made = type("Made", (nn.Module,), {"forward": forward})()
    for name, part in ({"conv": pyg.GCNConv(4, 4)} | parts).items():
        setattr(made, name, part)
    return made  # type: ignore[no-any-return]


def clamps_its_input(s: Any, x: Any, edge_index: Any) -> Any:
    x.clamp_(-10, 10)
    return s.conv(x, edge_index)


def clamps_rows_that_are_kept(s: Any, x: Any, edge_index: Any) -> Any:
    h = s.conv(x, edge_index)
    return torch.cat([h, h.clamp_(-8, 8)], -1)


def clamps_what_dropout_gave(s: Any, x: Any, edge_index: Any) -> Any:
    h = s.conv(x, edge_index)
    return functional.dropout(h, training=s.training).clamp_(-8, 8) + h


def writes_to_another(s: Any, x: Any, edge_index: Any) -> Any:
    torch.clamp(x, -10, 10, out=x)
    return s.conv(x, edge_index)


def clamps_weights(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    edge_weight.clamp_(max=1.8)
    return s.conv(x, edge_index, edge_weight)


def reads_what_a_module_wrote_over(s: Any, x: Any, edge_index: Any) -> Any:
    h = s.conv(x, edge_index)
    return s.chain(h) + h


def clamps_the_data(s: Any, x: Any, edge_index: Any) -> Any:
    h = s.conv(x, edge_index)
    h.data.clamp_(-8, 8)
    return h


def clamps_what_is_detached(s: Any, x: Any, edge_index: Any) -> Any:
    h = s.conv(x, edge_index).detach_()
    return h.clamp_(-8, 8) + h


def adds_to_what_is_kept(s: Any, x: Any, edge_index: Any) -> Any:
    h = kept = s.conv(x, edge_index)
    h += x
    return h + kept


@pytest.mark.parametrize(
    "forward",
    [
        clamps_its_input,
        clamps_what_is_detached,
        clamps_what_dropout_gave,
        writes_to_another,
        clamps_weights,
        reads_what_a_module_wrote_over,
    ],
)
def test_what_is_read_after_it_was_written_over_is_refused_by_its_line(
    forward: Callable[..., Any], tmp_path: Path
) -> None:
    """Rows of a random graph are too small for these to differ there."""
    chain = nn.Sequential(nn.Dropout(), nn.Hardtanh(-8, 8, inplace=True), nn.Linear(4, 4))
    with pytest.raises(ExportError, match=r"\(test_forward.py:\d+\) writes over what is read again"):
        export_model(module(forward, chain=chain), tmp_path / "M")


def in_place_where_nobody_reads(s: Any, x: Any, edge_index: Any) -> Any:
    x = functional.relu(s.conv(x, edge_index), inplace=True)
    x = s.act(functional.dropout(x, training=s.training))
    return s.last(s.conv(x, edge_index).relu_())


def test_in_place_is_taken_where_nobody_reads_what_it_wrote_over(tmp_path: Path) -> None:
    last = nn.Sequential(nn.ELU(inplace=True), nn.Linear(4, 4), nn.ReLU(inplace=True))
    made = module(in_place_where_nobody_reads, act=nn.ReLU(inplace=True), last=last)
    model = export_model(made, tmp_path / "M")
    assert [layer.type for layer in model.layers][-3:] == ["elu", "linear", "relu"]


def test_what_is_written_into_the_data_of_rows_is_what_they_are(tmp_path: Path) -> None:
    model = export_model(module(clamps_the_data), tmp_path / "M")
    assert [layer.type for layer in model.layers] == ["gcn_conv", "clamp"]


def asks_for_tensors(s: Any, x: Any, edge_index: Any) -> Any:
    if isinstance(x, torch.Tensor) and torch.is_tensor(x):
        x = x.clamp(-10, 10)
    return s.conv(x, edge_index)


def test_what_is_traced_passes_for_a_tensor_as_the_real_one_does(tmp_path: Path) -> None:
    assert [layer.type for layer in export_model(module(asks_for_tensors), tmp_path / "M").layers] == [
        "clamp",
        "gcn_conv",
    ]


def weights_come_fourth(s: Any, x: Any, edge_index: Any, batch: Any = None, edge_weight: Any = None) -> Any:
    return s.conv(x, edge_index, edge_weight)


def weights_come_by_name(s: Any, x: Any, edge_index: Any, *, edge_weight: Any) -> Any:
    return s.conv(x, edge_index, edge_weight)


@pytest.mark.parametrize("forward", [weights_come_fourth, weights_come_by_name])
def test_weights_are_found_wherever_forward_takes_them(forward: Callable[..., Any], tmp_path: Path) -> None:
    [layer] = export_model(module(forward), tmp_path / "M").layers
    assert layer.edge_weights  # type: ignore[attr-defined]


def weights_by_another_name(s: Any, x: Any, edge_index: Any, ew: Any = None) -> Any:
    return s.conv(x, edge_index, ew)


def needs_more(s: Any, x: Any, edge_index: Any, edge_weight: Any, batch: Any) -> Any:
    return s.conv(x, edge_index, edge_weight) * batch.view(-1, 1)


def test_parameters_that_would_be_ignored_or_missing_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="hands ew to conv as weights of edges: call it edge_weight"):
        export_model(module(weights_by_another_name), tmp_path / "M")
    with pytest.raises(ExportError, match="needs batch, expected"):
        export_model(module(needs_more), tmp_path / "M")


def of_a_sample(s: Any, x: Any, edge_index: Any, batch_size: Any) -> Any:
    return s.conv(x, edge_index)[:batch_size]


def test_the_size_of_a_sample_need_not_be_given(tmp_path: Path) -> None:
    assert [layer.type for layer in export_model(module(of_a_sample), tmp_path / "M").layers] == ["gcn_conv"]


def pools(s: Any, x: Any, edge_index: Any, batch: Any = None) -> Any:
    return pyg.global_mean_pool(s.conv(x, edge_index), batch)


def recurs_over_vertices(s: Any, x: Any, edge_index: Any) -> Any:
    return s.gru(s.conv(x, edge_index)[:, None])[0][:, 0]


def calls_a_list(s: Any, x: Any, edge_index: Any) -> Any:
    return s.convs[0](x, edge_index).relu().mean(0)


def test_a_refusal_names_what_cannot_be_taken_at_all(tmp_path: Path) -> None:
    says = r"global_mean_pool \(test_forward.py:\d+\) gives a row per graph, and Freshet keeps one per vertex: leave it"
    with pytest.raises(ExportError, match=says):
        export_model(module(pools), tmp_path / "M")
    with pytest.raises(ExportError, match=r"Besides, gru: GRU is not supported: Freshet's rows have no history"):
        export_model(module(recurs_over_vertices, gru=nn.GRU(4, 4)), tmp_path / "M")
    with pytest.raises(ExportError, match=r"^LINKX is not supported without ids: its edge_lin has a learned row"):
        export_model(pyg.LINKX(5, 4, 8, 3, 1), tmp_path / "M")
    with pytest.raises(ExportError, match="function mean is not supported") as refused:
        export_model(module(calls_a_list, convs=nn.ModuleList([pyg.GCNConv(4, 4)])), tmp_path / "M")
    assert ".convs" not in str(refused.value)  # which would be without the activation between


def keeps_its_rows(s: Any, x: Any, edge_index: Any) -> Any:
    s.h = s.conv(x, edge_index)
    s.calls += 1
    return s.h


def test_the_module_stays_as_it_is_and_what_training_left_in_it_is_no_obstacle(tmp_path: Path) -> None:
    made = module(keeps_its_rows, conv=pyg.SuperGATConv(4, 4)).train()
    made.register_buffer("calls", torch.zeros(()))
    made(torch.randn(9, 4), torch.randint(0, 9, (2, 30)))
    rows = made.h
    assert not rows.is_leaf, "torch.deepcopy would refuse it"
    export_model(made, tmp_path / "M")
    assert made.h is rows and made.calls == 1 and made.training


@pytest.mark.parametrize(
    "conv",
    [
        lambda: pyg.GATConv(-1, 4, heads=2),
        lambda: pyg.GATv2Conv(-1, 4),
        lambda: pyg.TransformerConv(-1, 4),
        lambda: pyg.SuperGATConv(-1, 4),
        lambda: pyg.SGConv(-1, 4, K=2),
    ],
)
def test_a_conv_that_its_first_rows_have_sized_is_taken(conv: Callable[[], Any], tmp_path: Path) -> None:
    made = conv()
    made(torch.randn(9, 8), torch.randint(0, 9, (2, 30)))
    assert made.in_channels == -1
    assert export_model(nn.ModuleList([made]), tmp_path / "M").features.width == 8


def test_a_conv_by_itself_is_a_model_and_what_wraps_one_is_told_apart(tmp_path: Path) -> None:
    convs = pyg.SAGEConv(8, 4), pyg.GCNConv(8, 4), pyg.TAGConv(8, 4), pyg.GATConv(8, 4)
    for number, conv in enumerate(convs):
        assert export_model(conv, tmp_path / str(number)).features.width == 8
    for wrapper, inner in ((pyg.GAE(convs[1]), "encoder"), (nn.DataParallel(convs[1]), "module")):
        with pytest.raises(ExportError, match=f"give its .{inner}"):
            export_model(wrapper, tmp_path / "M")


def norms_by_batch(s: Any, x: Any, edge_index: Any, batch: Any = None) -> Any:
    return s.norm(s.conv(x, edge_index), batch)


def says_a_size(s: Any, x: Any, edge_index: Any, size: Any = None) -> Any:
    return s.sage(x, edge_index, size=size)


@pytest.mark.parametrize("forward", [norms_by_batch, says_a_size])
def test_other_parameters_that_modules_take_keep_their_defaults(forward: Callable[..., Any], tmp_path: Path) -> None:
    made = module(forward, norm=pyg.LayerNorm(4, mode="node"), sage=pyg.SAGEConv(4, 4))
    assert not any(getattr(layer, "edge_weights", False) for layer in export_model(made, tmp_path / "M").layers)


@pytest.mark.parametrize("forward", [adds_to_what_is_kept, clamps_rows_that_are_kept])
def test_what_is_written_over_is_what_is_read_after_it(forward: Callable[..., Any], tmp_path: Path) -> None:
    export_model(module(forward), tmp_path / "M")


def test_the_length_of_a_parameter_is_a_number_and_that_of_rows_is_not(tmp_path: Path) -> None:
    scale = nn.Parameter(torch.tensor([1.0, 2, 3, 4]))
    made = module(lambda s, x, edge_index: s.conv(x, edge_index) * s.scale / len(s.scale), scale=scale)
    export_model(made, tmp_path / "M")
    made = module(lambda s, x, edge_index: s.conv(x, edge_index) / len(x))
    with pytest.raises(ExportError, match="a size of the graph, which every event may change"):
        export_model(made, tmp_path / "N")


class VGAE(nn.Module):
    """Of somebody's own, with the name of a wrapper of PyG's."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = pyg.GCNConv(4, 4)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.encoder(x, edge_index)


def test_a_class_of_the_name_of_a_wrapper_is_traced(tmp_path: Path) -> None:
    assert [layer.type for layer in export_model(VGAE(), tmp_path / "M").layers] == ["gcn_conv"]


def test_a_module_that_python_cannot_copy_is_named(tmp_path: Path) -> None:
    made = module(asks_for_tensors)
    made.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(ExportError, match=r"^Made cannot be copied .TypeError: cannot pickle '_thread.lock'"):
        export_model(made, tmp_path / "M")


def test_several_threads_may_export(tmp_path: Path) -> None:
    inside, done = threading.Event(), threading.Event()

    def forward(s: Any, x: Any, edge_index: Any) -> Any:
        if not inside.is_set():  # the first call alone: an export makes forty
            inside.set()
            done.wait(2)  # the other one waits until this is over
        return s.conv(x, edge_index)

    one = threading.Thread(target=export_model, args=(module(forward), tmp_path / "one"))
    one.start()
    assert inside.wait(60)
    export_model(module(asks_for_tensors), tmp_path / "other")
    done.set()
    one.join()
    assert {path.name for path in tmp_path.iterdir()} == {"one", "other"}


@pytest.mark.parametrize(
    "forward",
    [
        lambda s, x, edge_index: s.conv(torch.as_tensor(x), edge_index),
        lambda s, x, edge_index: torch.tensor(s.conv(x, edge_index)),
    ],
)
def test_torch_does_not_take_what_is_traced_for_a_tensor(forward: Callable[..., Any], tmp_path: Path) -> None:
    """It would read the memory of one: a crash of the process."""
    with pytest.raises(ExportError, match="Made cannot be traced"):
        export_model(module(forward), tmp_path / "m")


def takes_edges_first(s: Any, edges: Any, features: Any, edge_weight: Any = None) -> Any:
    return s.conv(features, edges, edge_weight).relu()


def takes_rows_first(s: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
    return s.conv(x, edge_index, edge_weight).relu()


def test_a_forward_may_take_edges_before_rows(tmp_path: Path) -> None:
    conv = pyg.GCNConv(4, 4)
    model = export_model(module(takes_edges_first, conv=conv), tmp_path / "M")
    assert model.sha256() == export_model(module(takes_rows_first, conv=conv), tmp_path / "N").sha256()


def embeds_and_classifies(s: Any, x: Any, edge_index: Any) -> Any:
    rows, _corrupted, _summary = s.dgi(x, edge_index)
    return s.last(rows, edge_index)


def classifies_what_is_corrupted(s: Any, x: Any, edge_index: Any) -> Any:
    return s.last(s.dgi(x, edge_index)[1], edge_index)


def test_rows_of_deep_graph_infomax_are_those_of_its_encoder(tmp_path: Path) -> None:
    def corrupted(x: Any, edge_index: Any) -> Any:
        return x[torch.randperm(x.size(0))], edge_index

    dgi = pyg.DeepGraphInfomax(4, pyg.GCN(4, 4, 1), lambda z, *_: z.mean(0).sigmoid(), corrupted)
    model = export_model(module(embeds_and_classifies, dgi=dgi, last=pyg.GCNConv(4, 3)), tmp_path / "M")
    assert [layer.type for layer in model.layers] == ["gcn_conv", "gcn_conv"]
    with pytest.raises(ExportError):
        export_model(module(classifies_what_is_corrupted, dgi=dgi, last=pyg.GCNConv(4, 3)), tmp_path / "N")


class Beside(nn.Module):
    """A module that takes several rows of each vertex."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.text, self.numbers, self.conv = nn.Linear(3, 4), nn.Linear(2, 4), conv

    def forward(self, text: Any, numbers: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.conv(torch.cat([self.text(text).tanh(), self.numbers(numbers)], -1), edge_index, edge_weight)


class BesideOfTypes(Beside):
    def forward(self, text: Any, numbers: Any, edge_index: Any, edge_type: Any) -> Any:  # type: ignore[override]
        return self.conv(torch.cat([self.text(text).tanh(), self.numbers(numbers)], -1), edge_index, edge_type)


def test_several_rows_of_a_vertex_are_columns_of_its_features(tmp_path: Path) -> None:
    model = export_model(Beside(pyg.GCNConv(8, 3)), tmp_path / "M", features={"text": 3, "numbers": 2})
    assert isinstance(model, Model)
    assert model.features.width == 5
    typed = export_model(BesideOfTypes(pyg.RGCNConv(8, 3, 2)), tmp_path / "N", features={"text": 3, "numbers": 2})
    assert isinstance(typed, KindsModel)
    assert typed.kinds == {"": 5}
    for features, says in (
        ({"text": 3}, "needs numbers"),
        (None, "needs numbers, .* give their widths: features="),
        ({"text": 3, "numbers": 2, "edge_index": 2}, "none called edge_index"),
        ({"text": 3, "numbers": 4}, "fails|shapes"),
    ):
        with pytest.raises(ExportError, match=says):
            export_model(Beside(pyg.GCNConv(8, 3)), tmp_path / "O", features=features)
