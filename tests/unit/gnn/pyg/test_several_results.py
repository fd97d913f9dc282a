"""Convs that return several results, of which a forward takes some by their place or name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.utils import scatter  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from scripts.tools.pyg_examples import WIDTH  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402


class TwoAggregates(pyg.MessagePassing):
    """A sum of messages and their maximum, weighed by edges."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, 3)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.propagate(edge_index, x=self.lin(x), edge_weight=edge_weight)

    def message(self, x_j: Any, edge_weight: Any) -> Any:
        return edge_weight.view(-1, 1) * x_j, x_j

    def aggregate(self, inputs: Any, index: Any, dim_size: Any) -> Any:
        return tuple(scatter(one, index, 0, dim_size, how) for one, how in zip(inputs, ("sum", "max"), strict=True))

    def update(self, inputs: Any) -> Any:
        return inputs


class NamedResults(TwoAggregates):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        total, most = super().forward(x, edge_index, edge_weight)
        return {"total": total + most, "own": self.lin(x).tanh()}


class TakesSome(nn.Module):
    def __init__(self, conv: Any, taken: Callable[[Any], Any], **options: Any) -> None:
        super().__init__()
        self.conv, self.taken, self.options = conv, taken, options

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.taken(self.conv(x, edge_index, edge_weight, **self.options))


def both(made: Any) -> Any:
    total, most = made
    return torch.cat([total.relu(), most], -1)


CASES: dict[str, Callable[[], Any]] = {
    "both": lambda: TakesSome(TwoAggregates(), both),
    "one": lambda: TakesSome(TwoAggregates(), lambda made: made[1]),
    "the last": lambda: TakesSome(TwoAggregates(), lambda made: made[-1] * 2 + made[1]),
    "by name": lambda: TakesSome(NamedResults(), lambda made: made["total"] * made["own"]),
}


@pytest.mark.parametrize("name", CASES)
def test_each_result_is_that_of_the_conv_after_each_epoch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(4)
    module = CASES[name]().eval()
    assert_streams(module, export_model(module, tmp_path, features=WIDTH), "module(x, edge_index, edge_weight)")


class Attended(nn.Module):
    def __init__(self, taken: Callable[[Any], Any]) -> None:
        super().__init__()
        self.conv, self.taken = pyg.GATv2Conv(WIDTH, 3), taken

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.taken(self.conv(x, edge_index, return_attention_weights=True))


def rows_alone(made: Any) -> Any:
    out, (_, _alpha) = made
    return out


def test_a_conv_may_return_attention_weights_that_nobody_reads(tmp_path: Path) -> None:
    torch.manual_seed(4)
    module = Attended(rows_alone).eval()
    model = export_model(module, tmp_path, features=WIDTH)
    assert [one.type for one in model.layers] == ["gatv2_conv"]
    assert_streams(module, model, "module(x, edge_index)")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (lambda: Attended(lambda made: made[1][1]), "keeps some of the rows"),
        (lambda: TakesSome(Tensors(), lambda made: made[0]), r"one tensor, of which \[0\] keeps some of the rows"),
        (lambda: TakesSome(TwoAggregates(), lambda made: made[2]), "IndexError"),
        (lambda: TakesSome(TwoAggregates(), lambda made: made), "returns tuple, expected the rows.* as self.conv"),
    ],
)  # fmt: skip
def test_other_uses_of_results_are_refused(module: Callable[[], Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=reason):
        export_model(module().eval(), tmp_path, features=WIDTH)


class Tensors(TwoAggregates):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return super().forward(x, edge_index, edge_weight)[0]
