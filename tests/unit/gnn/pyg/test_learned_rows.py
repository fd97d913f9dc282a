"""Modules with rows by id, exported, give what PyTorch Geometric gives as vertices come, change, go and come again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch_geometric.data import HeteroData  # noqa: E402

from freshet.gnn.kinds.model import KindsModel, load_any_model  # noqa: E402
from freshet.gnn.pyg.errors import ExportError  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from freshet.kinds_graph import KindsGraph  # noqa: E402
from freshet.state.task_parts import TaskParts  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs.kind_streams import arrays_of, random_rows  # noqa: E402
from tests.support.stages.kind_cores import KindCores  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
Given = tuple[dict[str, Any], dict[Any, Any], dict[str, Any]]
"""Features by kind, edges by relation, ids by kind."""


def in_one(module: Any, given: Given) -> Any:
    data = HeteroData()
    for kind, x in given[0].items():
        data[kind].x, data[kind].node_id = x, given[2][kind]
    for relation, edges in given[1].items():
        data[relation].edge_index = edges
    return module(data)


def of_all(module: Any, given: Given) -> Any:
    """Rows of all ids, of which those that are there are taken; edges are between rows of these."""
    edges = {}
    for (source, name, target), ends in given[1].items():
        edges[source, name, target] = torch.stack([given[2][source][ends[0]], given[2][target][ends[1]]])
    return {kind: rows[given[2][kind]] for kind, rows in module(edges).items()}


def types_of(given: Given, ids: Any) -> tuple[Any, Any]:
    """Edges of all types between vertices that have these numbers, and the type of each."""
    edges = [ids[ends] for ends in given[1].values()]
    types = [torch.full((one.shape[1],), number) for number, one in enumerate(edges)]
    return torch.cat(edges, dim=1), torch.cat(types)


def of_numbers(module: Any, given: Given) -> Any:
    """Rows of all ids of an RGCN without features, of which those that are there are taken."""
    (ids,) = given[2].values()
    return module(*types_of(given, ids))[ids]


def by_numbers(module: Any, given: Given) -> Any:
    """Rows of an RGCN that is called with ids."""
    (ids,) = given[2].values()
    return module.embed(ids, *types_of(given, torch.arange(len(ids))))


def numbered(types: int, conv: Any = pyg.RGCNConv, *, second: bool = True, x: Any = None, **options: Any) -> Any:
    """An RGCN without features, whose first conv has these options."""
    return of.Numbered(conv(of.IDS, 6, types, **options), conv(6, 3, types) if second else None, x)


def plain(given: Given) -> tuple[Any, Any, Any]:
    """Features, edges and ids of the one kind."""
    x, edges, ids = ([*one.values()] for one in given)
    return x[0], edges[0], ids[0]


IN_KINDS: dict[str, Any] = {"metadata": of.METADATA}
IN_ONE: dict[str, Any] = {"ids": range(of.IDS), "edge_types": ["cites"]}
BESIDE = {"ids": range(of.IDS), "method": "beside_features"}
CALLS: dict[str, tuple[Callable[[], Any], Callable[[Any, Given], Any], dict[str, Any]]] = {
    "all in one": (of.LinkEncoder, in_one, IN_KINDS),
    "ids by kind": (of.WithIds, lambda module, given: module(*given), IN_KINDS),
    "ids as features": (
        of.IdsAsFeatures,
        lambda m, given: m(given[0] | {"author": given[2]["author"]}, given[1]),
        IN_KINDS,
    ),
    "all rows": (of.AllRows, of_all, IN_KINDS),
    "without kinds": (
        lambda: of.WithoutKinds(pyg.GATConv),
        lambda module, given: module(plain(given)[2], plain(given)[1]),
        IN_ONE,
    ),
    "without kinds, with features": (
        lambda: of.WithoutKinds(pyg.SAGEConv),
        lambda module, given: module.with_features(*plain(given)),
        IN_ONE | {"method": "with_features"},
    ),
    "numbers, bases": (lambda: numbered(3, num_bases=2), of_numbers, {}),
    "numbers, more bases than types": (lambda: numbered(3, num_bases=30), of_numbers, {}),
    "numbers, many types": (lambda: numbered(10, num_bases=2, aggr="sum"), of_numbers, {}),
    "numbers, without bases": (lambda: numbered(3, root_weight=False), of_numbers, {}),
    "numbers, fast": (lambda: numbered(3, pyg.FastRGCNConv, num_bases=2), of_numbers, {}),
    "numbers, maxima": (lambda: numbered(3, num_bases=2, aggr="max"), of_numbers, {}),
    "numbers, one layer": (lambda: numbered(3, second=False, bias=False), of_numbers, {}),
    "numbers, listed": (lambda: numbered(1, num_bases=1, x=torch.arange(of.IDS)), of_numbers, {}),
    "numbers as features": (
        lambda: numbered(3, num_bases=2),
        by_numbers,
        {"method": "embed", "ids": range(of.IDS)},
    ),
}


def given_of(model: KindsModel, ids: list[list[int]], graph: KindsGraph) -> Given:
    x = dict(zip(model.kinds, map(torch.from_numpy, graph.x), strict=True))
    pairs = zip(model.relations, graph.edges, strict=True)
    edges = {relation.ends: torch.from_numpy(np.stack([one.src, one.dst])) for relation, one in pairs}
    return x, edges, {kind: torch.tensor(one, dtype=torch.int64) for kind, one in zip(model.kinds, ids, strict=True)}


@pytest.mark.parametrize("name", CALLS)
def test_rows_by_id_are_those_of_the_module(name: str, tmp_path: Path) -> None:
    make, call, options = CALLS[name]
    module = of.randomised(make())
    export_model(module, tmp_path, **options)
    model = load_any_model(tmp_path)
    assert isinstance(model, KindsModel)
    assert {kind for kind, width in model.kinds.items() if not width} <= set(model.learned)
    cores, rng, compared = KindCores(model, [TaskParts.of([2, 1])]), np.random.default_rng(1), 0
    for epoch in range(5):
        cores.run(random_rows(cores.graph, rng, 12 if epoch else 60))
        ids, graph = arrays_of(cores.graph)
        with torch.no_grad():
            out = call(module, given_of(model, ids, graph))
        for kind, rows in (out if isinstance(out, dict) else {model.out[0]: out}).items():
            number = list(model.kinds).index(kind)
            for row, vertex in enumerate(ids[number]):
                np.testing.assert_allclose(cores.rows[number, vertex], rows[row], rtol=2e-4, atol=2e-4)
                compared += 1
    assert compared > 20


def test_ids_may_be_strings_and_every_id_has_its_own_row(tmp_path: Path) -> None:
    names = [f"a{7 * number % 10}" for number in range(of.IDS)]
    module = of.randomised(of.IdsAsFeatures())
    model = export_model(module, tmp_path, metadata=of.METADATA, ids={"author": np.array(names)})
    assert isinstance(model, KindsModel)
    assert model.learned["author"].ids == "string"
    other = export_model(module, tmp_path / "1", metadata=of.METADATA, ids={"author": torch.arange(of.IDS) * -3})
    assert isinstance(other, KindsModel)
    loaded = load_any_model(tmp_path / "1")
    assert loaded.sha256() == other.sha256() != model.sha256()
    rows, known = other.learned_rows()["author"].find(np.array([-6, 1, -24, 0]))
    assert known.tolist() == [True, False, True, True]
    np.testing.assert_array_equal(rows, module.author_emb.weight.detach().numpy()[[2, 0, 8, 0]] * known[:, None])


def test_relations_in_one_kind_with_a_row_for_each_vertex(tmp_path: Path) -> None:
    model = export_model(of.randomised(of.TypedByIds()), tmp_path)
    assert isinstance(model, KindsModel)
    assert model.kinds == {"": 0}
    assert model.learned[""].rows == {"node_emb": 4}


MANY = 60  # rows, which are more than the last check of an export takes


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda conv: of.Numbered(conv(MANY, 4, 3, num_bases=2), conv(4, 3, 3)), {}),
        (lambda conv: of.Numbered(conv(MANY, 4, 3), None, torch.arange(MANY)), {}),
        (lambda conv: of.Numbered(conv(MANY, 4, 3), None), {"method": "embed"}),
    ],
)
@pytest.mark.parametrize("conv", [pyg.RGCNConv, pyg.FastRGCNConv])
def test_an_rgcn_of_more_vertices_than_the_last_check_takes(
    conv: Any, make: Callable[[Any], Any], options: dict[str, Any], tmp_path: Path
) -> None:
    module = of.randomised(make(conv))
    model = export_model(module, tmp_path, ids=[f"v{number}" for number in range(MANY)], **options)
    assert isinstance(model, KindsModel)
    assert (model.learned[""].count, model.kinds) == (MANY, {"": 0})
    assert module.first.in_channels_l == MANY == len(module.first.root)


def with_norm(module: Any) -> Any:
    module.author_emb.max_norm = 1.0
    return module


WRONG: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "too few": (of.IdsAsFeatures, {"ids": {"author": [1, 2]}}, "ids: 2 of kind 'author', but author_emb has 9 rows"),
    "twice": (of.IdsAsFeatures, {"ids": {"author": [1] * 9}}, "ids of kind 'author': the id 1 is there twice"),
    "mixed": (of.IdsAsFeatures, {"ids": {"author": [*range(8), "a"]}}, "ids have 'a' .str. among them, expected"),
    "of features": (of.IdsAsFeatures, {"ids": {"paper": range(9)}}, "looks up no learned rows of kind 'paper'"),
    "no list": (of.IdsAsFeatures, {"ids": {"author": 9}}, "ids of kind 'author' are int, expected a sequence"),
    "width of ids": (of.IdsAsFeatures, {"features": {"author": 3}}, "x of kind 'author' are the ids of its vertices"),
    "norm": (lambda: with_norm(of.IdsAsFeatures()), {}, "author_emb .*: max_norm=1.0 is not supported"),
}


@pytest.mark.parametrize(
    ("conv", "options", "words"),
    [
        (pyg.SAGEConv, {"ids": range(8)}, "ids: 8 of kind 'vertex', but emb has 9 rows"),
        (pyg.SAGEConv, IN_ONE | {"edge_types": ["a", "b"]}, "the module has no types: with ids it has one relation"),
        (lambda _, out: pyg.SAGEConv(7, out), BESIDE, "features of kind 'vertex' is unknown, .* width: features=N"),
        (lambda _, out: pyg.SAGEConv(-1, out), BESIDE, "features of kind 'vertex' were ids: give their .*: features=N"),
        (pyg.SAGEConv, {}, r"emb: torch.nn.Embedding is not supported: .* Nearest: ids=\[...\], the id of each of"),
    ],
)
def test_what_a_module_without_kinds_cannot_have_is_refused(
    conv: Any, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=words):
        export_model(of.randomised(of.WithoutKinds(conv)), tmp_path, **options)


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_looked_up_is_refused_by_name(name: str, tmp_path: Path) -> None:
    make, options, words = WRONG[name]
    with pytest.raises(ExportError, match=words):
        export_model(of.randomised(make()), tmp_path, metadata=of.METADATA, **options)
