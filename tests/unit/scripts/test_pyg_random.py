"""Random modules are made of every template, and what differs from its module on other graphs is called wrong."""

from __future__ import annotations

import ast
from typing import Any

import pytest

pytest.importorskip("torch_geometric")

import numpy as np
import torch

from freshet.gnn.oracles.scaled import Scaled
from scripts.tools import pyg_examples, pyg_random, pyg_random_graphs
from scripts.tools.pyg_random_kinds import HOSTILE_DICTS, draw_kinds
from scripts.tools.pyg_random_programs import draw
from scripts.tools.pyg_random_tables import HOSTILE, READ
from scripts.tools.pyg_random_written import AFTER, HOSTILE_WRITTEN, LAYERS, draw_written


def test_sources_are_python_and_drawn_again_by_their_seed() -> None:
    sources = [draw(seed, 0.5) for seed in range(300)]
    for seed, source in enumerate(sources):
        ast.parse(source.text)
        assert source == draw(seed, 0.5)
    assert len({one for source in sources for one in source.hostile}) > len(HOSTILE) // 2
    assert len(READ) > 80


def test_what_differs_on_other_graphs_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    source = draw(0, 0.0)._replace(call="module(x, edge_index)")
    text = source.text.partition("class Drawn")[0] + (
        "class Drawn(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.conv = pyg.SAGEConv(4, 3)\n"
        "    def forward(self, x, edge_index):\n        return self.conv(x, edge_index)\n"
    )
    source = source._replace(text=text)
    assert pyg_random.judged(source, 1).what == "taken"
    run: Any = pyg_random_graphs.run
    monkeypatch.setattr(pyg_random_graphs, "run", lambda *given, **more: run(*given, **more) + is_large(given[2]))
    found = pyg_random.judged(source, 1)
    assert found.what == "wrong"
    assert "5000 vertices" in found.why


def is_large(given: pyg_random_graphs.Given) -> bool:
    return len(given.x[""]) > 4000


def test_sources_with_kinds_are_python_and_drawn_again_by_their_seed() -> None:
    sources = [draw_kinds(seed, 0.5) for seed in range(400)]
    for seed, source in enumerate(sources):
        ast.parse(source.text)
        assert source == draw_kinds(seed, 0.5)
    assert {source.group for source in sources} == {"dicts", "looked up", "to_hetero", "typed"}
    assert len({one for source in sources for one in source.hostile}) > len(HOSTILE_DICTS)
    assert any(source.logits for source in sources)
    assert any(source.link for source in sources)


def test_sources_as_users_write_them_are_python_and_drawn_again_by_their_seed() -> None:
    sources = [draw_written(seed, 0.5) for seed in range(400)]
    for seed, source in enumerate(sources):
        ast.parse(source.text)
        assert source == draw_written(seed, 0.5)
    assert {source.group for source in sources} == {"sets", "written"}
    assert len({one for source in sources for one in source.hostile}) > len(HOSTILE_WRITTEN)
    assert len(LAYERS) + len(AFTER) > 50


@pytest.mark.parametrize("edges", ["edge_index", "edge_index.flip(0)"])
def test_weights_and_attributes_are_those_of_the_graph_also_where_edges_are_turned(edges: str) -> None:
    source = draw_written(1, 0.0)._replace(kinds=None, relations=None, options="dict(features=4, edge_features=3)")
    text = source.text.partition("class Drawn")[0] + WEIGHTED.format(edges=edges)
    call = "module(x=x, edge_index=edge_index, edge_weight=edge_weight, edge_attr=edge_attr)"
    found = pyg_random.judged(source._replace(text=text, call=call), 1, stream=True)
    assert found.what == "taken", found
    assert int(found.why.split()[0]) > 20


WEIGHTED = """
class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = pyg.GINEConv(nn.Linear(4, 4), edge_dim=3), pyg.GraphConv(4, 3)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        return self.last(self.conv(x, edge_index, edge_attr), {edges}, edge_weight)
"""


def test_a_module_with_kinds_is_compared_on_graphs_and_on_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    source = next(one for one in map(draw_kinds, range(100)) if one.group == "dicts" and not one.hostile)
    text = source.text.partition("class Drawn")[0] + KINDS
    options = "dict(features={'user': 4, 'item': 6}, head='lin', output='item')"
    relations = [("user", "buys", "item"), ("item", "rev_buys", "user")]
    source = source._replace(text=text, call="module.embed(x_dict, edge_index_dict)", options=options)
    source = source._replace(kinds={"user": 4, "item": 6}, relations=relations, link=None)
    source = source._replace(logits="module(x_dict, edge_index_dict)['item']")
    found = pyg_random.judged(source, 1, stream=True)
    assert found.what == "taken", found
    assert int(found.why.split()[0]) > 20
    monkeypatch.setattr(pyg_random_graphs, "streamed_by_kind", lambda *given: (1.0, 9))
    assert pyg_random.judged(source, 1, stream=True).why == "off by 1 after the epochs of a stream"


KINDS = """
class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        buys, bought = pyg.SAGEConv((4, 6), 4), pyg.SAGEConv((6, 4), 4)
        self.conv = pyg.HeteroConv({('user', 'buys', 'item'): buys, ('item', 'rev_buys', 'user'): bought})
        self.lin = nn.Linear(4, 3)

    def embed(self, x_dict, edge_index_dict):
        return self.conv(x_dict, edge_index_dict)['item'].relu()

    def forward(self, x_dict, edge_index_dict):
        return {'item': self.lin(self.embed(x_dict, edge_index_dict))}
"""

SOLE = """
class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.HeteroConv({('item', 'near', 'item'): pyg.GraphConv((6, 6), 4)})

    def forward(self, x_dict, edge_index_dict):
        return self.conv({'item': x_dict['item']}, edge_index_dict)['item']
"""
SATURATED = """
class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GatedGraphConv(4, 2)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return h / h.std(-1, keepdim=True)
"""


def test_where_roundings_decide_whether_a_value_is_finite_the_module_is_right() -> None:
    ours = Scaled(np.array([[np.nan, np.nan, np.nan, 2.0]]), np.array([[np.inf, np.inf, 1.0, np.inf]]))
    theirs, again = np.array([[-1.7, 1.0, 1.0, 1.0]]), np.array([[np.nan, 1.0, np.nan, np.nan]])
    settled = pyg_random_graphs.settled(theirs, ours, [theirs, again])
    np.testing.assert_array_equal(settled.rows, [[-1.7, np.nan, np.nan, 2.0]])


def test_infinities_less_infinities_are_any_value_that_is_no_number() -> None:
    got = Scaled(np.array([[np.nan, np.nan, np.nan, np.nan]]), np.array([[np.inf, np.inf, 1.0, np.inf]]))
    made = pyg_examples.with_infinities(got, np.array([[-np.inf, np.nan, -np.inf, 1.0]]))
    np.testing.assert_array_equal(made.rows, [[-np.inf, np.nan, np.nan, np.nan]])


def test_constants_in_a_row_of_the_module_with_nan_may_be_nan() -> None:
    theirs = np.array([[np.nan, 1.0], [1.0, 1.0]])
    ours = Scaled(np.full((2, 2), np.nan), np.full((2, 2), np.inf))
    np.testing.assert_array_equal(pyg_random_graphs.settled(theirs, ours, [theirs]).rows, [[np.nan, 1], [np.nan] * 2])


def test_a_divisor_of_roundings_is_judged_by_no_float() -> None:
    source = draw(0, 0.0)._replace(call="module(x, edge_index)", options="dict(features=4)", logits="", link=None)
    text = source.text.partition("class Drawn")[0] + SATURATED
    assert pyg_random.judged(source._replace(text=text), 960840).what == "taken"


def test_the_sole_kind_of_a_model_need_not_be_the_first_one_of_its_module() -> None:
    source = next(one for one in map(draw_kinds, range(100)) if one.group == "dicts" and not one.hostile)
    text = source.text.partition("class Drawn")[0] + SOLE
    near = ("item", "near", "item")
    source = source._replace(text=text, call="module(x_dict, edge_index_dict)", options="dict()", logits="", link=None)
    source = source._replace(kinds={"user": 4, "item": 6}, relations=[("user", "likes", "item"), near])
    found = pyg_random.judged(source, 1, stream=True)
    assert found.what == "taken", found
    assert int(found.why.split()[0]) > 20


def test_edges_of_a_stream_have_the_types_that_a_model_names_and_no_layer_reads() -> None:
    source = draw_kinds(2100336, 0.12)
    assert source.group == "typed"
    found = pyg_random.judged(source, 1, stream=True)
    assert found.what == "taken", found


def test_refusals_of_one_kind_are_counted_together() -> None:
    one, other = (f"view (<pyg_random_{n}>:{n}): rows of width {n}" for n in (7, 12))
    assert pyg_random.shortened(one) == pyg_random.shortened(other)
    assert torch.get_default_dtype() == torch.float32
