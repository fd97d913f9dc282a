"""Modules that score pairs of embeddings: what they are read as scores as they do, or is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import HeteroConv, RGCNConv, SAGEConv

import freshet
from freshet.gnn.describe import describe_text
from freshet.gnn.kinds.model import load_any_model
from freshet.gnn.model import ModelError
from freshet.gnn.pyg.own.pairs import link_head_of
from freshet.gnn.readout import load_readouts

W = 8


class Head(nn.Module):
    """A head that a function and some parts make."""

    def __init__(self, run: Callable[[Any, Any, Any], Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> Any:
        return self.run(self, left, right)


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape))


def heads() -> dict[str, nn.Module]:
    return {
        "dot": Head(lambda self, a, b: (a * b).sum(-1)),
        "dot in a column": Head(lambda self, a, b: (a * b).sum(-1, keepdim=True)),
        "sigmoid": Head(lambda self, a, b: torch.sigmoid((a * b).sum(1))),
        "einsum": Head(lambda self, a, b: torch.einsum("ni,ni->n", a, b)),
        "cosine": Head(lambda self, a, b: F.cosine_similarity(a, b)),
        "cosine module": Head(lambda self, a, b: self.cos(a, b), cos=nn.CosineSimilarity()),
        "normalized": Head(lambda self, a, b: (F.normalize(a, dim=-1) * F.normalize(b, dim=-1)).sum(-1)),
        "weight a channel": Head(lambda self, a, b: (a * self.w * b).sum(-1), w=parameter(W)),
        "bilinear": nn.Bilinear(W, W, 1),
        "bilinear and more": Head(
            lambda self, a, b: self.o(torch.relu(self.b(a, b))), b=nn.Bilinear(W, W, 5), o=nn.Linear(5, 1)
        ),
        "wide bilinear": Head(
            lambda self, a, b: self.o(torch.tanh(self.b(a, b))), b=nn.Bilinear(W, W, 12, bias=False), o=nn.Linear(12, 1)
        ),
        "matrix": Head(lambda self, a, b: ((a @ self.m) * b).sum(-1), m=parameter(W, W)),
        "matrix by einsum": Head(lambda self, a, b: torch.einsum("ni,ij,nj->n", a, self.m, b), m=parameter(W, W)),
        "bmm": Head(lambda self, a, b: torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).squeeze(-1)),
        "cat": Head(lambda self, a, b: self.net(torch.cat([a, b], -1)), net=network(2 * W)),
        "product": Head(lambda self, a, b: self.net(a * b).view(-1), net=network(W)),
        "difference": Head(lambda self, a, b: self.net((a - b).abs()).squeeze(-1), net=network(W)),
        "all of these": Head(
            lambda self, a, b: self.net(torch.cat([a, b, a * b, (a - b).abs()], dim=1)), net=network(4 * W)
        ),
        "distance": Head(lambda self, a, b: -F.pairwise_distance(a, b)),
        "length": Head(lambda self, a, b: -torch.norm(a - b, dim=-1)),
        "norms": Head(
            lambda self, a, b: self.net(self.bn(torch.cat([a, b], -1))), bn=nn.BatchNorm1d(16), net=network(16)
        ),
        "towers": Head(
            lambda self, a, b: (self.a(a) * self.b(b)).sum(-1) + self.t,
            a=nn.Linear(W, 4),
            b=nn.Linear(W, 4),
            t=nn.Parameter(torch.tensor(0.3)),
        ),
        "one side": Head(lambda self, a, b: b.sum(-1)),
    }


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = SAGEConv(4, W)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(x, edge_index)


class OfKinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        convs = {
            ("user", "buys", "item"): SAGEConv((4, 4), W),
            ("item", "rev_buys", "user"): SAGEConv((4, 4), 6),
        }
        self.convs = HeteroConv(convs)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.convs(x_dict, edge_index_dict)


def rows(count: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def expected(head: nn.Module, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        made = head.double().eval()(torch.from_numpy(left).double(), torch.from_numpy(right).double())
    found: np.ndarray = made.reshape(-1).numpy()
    return found


@pytest.mark.parametrize("name", heads())
def test_a_head_scores_pairs_as_its_module_does(name: str, tmp_path: Path) -> None:
    head = heads()[name]
    model = freshet.export_model(Net(), tmp_path / "M", link_head=head)
    assert load_any_model(tmp_path / "M").sha256() == model.sha256()
    scores = load_readouts(tmp_path / "M").link_scores()
    left, right = rows(9000, W, 1), rows(9000, W, 2)
    made = scores.of(left, right)
    assert scores.by == "link_head"
    assert np.abs(made - expected(head, left, right)).max() < 3e-5
    for k in (0, 17, 8999):  # of its two rows alone, to the bit
        assert scores.of(left[k : k + 1], right[k : k + 1])[0] == made[k]
    one = scores.of(left[:1], right)
    assert (one == scores.of(np.repeat(left[:1], len(right), axis=0), right)).all()


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (Head(lambda self, a, b: (a * b).sum(-1) - (a * b).sum(-1).mean()), "mean reads more than one"),
        (Head(lambda self, a, b: (a * b).sum(-1) * len(a)), "number of pairs"),
        (Head(lambda self, a, b: (a * b).sum(-1) * (2 if len(a) > 50 else 1)), "branches on the number of pairs"),
        (Head(lambda self, a, b: (a * b).sum(-1) * (2 if len(a) > 3000 else 1)), "branches on the number of pairs"),
        (Head(lambda self, a, b: (a * b).sum(-1).softmax(0)), "reads all"),
        (Head(lambda self, a, b: a * b), "expected one number of each pair"),
        (Head(lambda self, a, b: a @ b.T), "different vertices or edges"),
        (Head(lambda self, a, b: (a * b).sum(-1) + torch.rand(len(a))), "draws at random"),
        (Head(lambda self, a, b: (a * b).sum(-1) * self.w, w=nn.Parameter(torch.tensor(torch.nan))), "NaN"),
        (Head(lambda self, a, b: torch.zeros(len(a))), "expected one number of each pair"),
        (Head(lambda self, a, b: None), "returns NoneType"),
        (Head(lambda self, a, b: self.nothing(a)), "AttributeError"),
        (nn.Bilinear(W + 1, W, 1), "fails on rows of width 8 and 8"),
        (5, "expected a torch.nn.Module"),
        ({("a", "b"): nn.Bilinear(W, W, 1)}, "has no kinds"),
    ],
)
def test_a_head_that_is_no_function_of_two_rows_is_refused(head: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(freshet.ExportError, match=says):
        freshet.export_model(Net(), tmp_path / "M", link_head=head)
    assert not (tmp_path / "M").exists()


def test_a_model_without_a_head_keeps_its_identity_and_takes_the_dot_product(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Net()
    plain = freshet.export_model(module, tmp_path / "M")
    assert "link_head" not in (tmp_path / "M" / "model.json").read_text()
    scores = load_readouts(tmp_path / "M").link_scores()
    left, right = rows(5, W, 1), rows(5, W, 2)
    assert scores.by == "dot"
    assert np.allclose(scores.of(left, right), (left.astype(float) * right).sum(1), atol=1e-5)
    assert freshet.export_model(module, tmp_path / "M2", link_head=nn.Bilinear(W, W, 1)).sha256() != plain.sha256()


def test_heads_of_two_kinds(tmp_path: Path) -> None:
    head, folder = nn.Bilinear(6, W, 1), tmp_path / "M"
    features = {"user": 4, "item": 4}
    freshet.export_model(OfKinds(), folder, features=features, link_head={("user", "item"): head})
    found, left, right = load_readouts(folder), rows(7, 6, 1), rows(7, W, 2)
    scores = found.link_scores("user", "item")
    assert np.allclose(scores.of(left, right), expected(head, left, right), atol=1e-5)
    with pytest.raises(ModelError, match="no link head for user and user; it has one for user and item"):
        found.link_scores("user", "user")
    freshet.export_model(OfKinds(), tmp_path / "dots", features=features)
    dots = load_readouts(tmp_path / "dots")
    assert dots.link_scores("user", "user").by == "dot"
    with pytest.raises(ModelError, match="item are 8 wide and those of user 6"):
        dots.link_scores("item", "user")
    assert "link head of user and item: linear 6 > 8, mul, sum_columns" in describe_text(folder)
    for given, says in (
        ({("user", "shop"): head}, "of returned kinds"),
        (head, "name both"),
        ({"user": head}, "a pair"),
    ):
        with pytest.raises(freshet.ExportError, match=says):
            freshet.export_model(OfKinds(), tmp_path / "other", features=features, link_head=given)


class OfTypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = RGCNConv(4, W, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_type: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.conv(x, edge_index, edge_type)
        return made


def test_a_head_of_vertices_without_kinds_whose_edges_have_types(tmp_path: Path) -> None:
    head = nn.Bilinear(W, W, 1).eval()
    freshet.export_model(OfTypes().eval(), tmp_path, link_head=head)
    readouts, left, right = load_readouts(tmp_path), rows(9, W, 1), rows(9, W, 2)
    np.testing.assert_allclose(readouts.link_scores().of(left, right), expected(head, left, right), 1e-5, 1e-5)
    assert "of  and" not in describe_text(tmp_path)
    with torch.no_grad():
        scores = freshet.to_torch(tmp_path).scores(torch.from_numpy(left), torch.from_numpy(right))
    np.testing.assert_allclose(scores.numpy().reshape(-1), expected(head, left, right), 1e-5, 1e-5)


def test_a_bilinear_layer_within_a_message_is_read_the_same_way() -> None:
    spec, weights = link_head_of(nn.Bilinear(3, 5, 1, bias=False), 3, 5, "link_head")
    assert [one.op for one in spec.program] == ["rows", "mul", "sum_columns"]
    assert sorted(weights) == ["link_head.0.weight"]


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ([{"op": "mul", "of": ["source", "target"]}], "makes 8 numbers"),
        ([{"op": "sum_columns", "of": ["attr"]}], "reads 'attr'"),
        ([], "at least 1 item"),
    ],
)
def test_a_declared_head_that_makes_no_score_is_refused(program: Any, says: str, tmp_path: Path) -> None:
    freshet.export_model(Net(), tmp_path / "M")
    path = tmp_path / "M" / "model.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"link_head": {"program": program}}))
    with pytest.raises(ModelError, match=says):
        load_any_model(tmp_path / "M")
