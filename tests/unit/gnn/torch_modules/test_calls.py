"""Calls of modules: by edge types, with dicts and ids; and what does not fit, refused by its name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Data  # noqa: E402

from freshet.errors import InputError, ModuleInputError  # noqa: E402
from freshet.gnn.kinds.learned import digests_of, learned_weights  # noqa: E402
from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.oracles import kinds as oracle  # noqa: E402
from freshet.gnn.pyg.check import off  # noqa: E402
from freshet.gnn.pyg.graph_data import graph_data  # noqa: E402
from freshet.gnn.torch_modules.loading import module_of  # noqa: E402
from tests.support.graphs.kinds import (  # noqa: E402
    KINDS,
    RELATIONS,
    by_kind,
    hetero,
    kinds_model,
    random_kinds_graph,
    random_model_of_kinds,
    relation,
    sage,
    sage_everywhere,
)
from tests.support.graphs.models import conv, make_model  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402
from tests.support.graphs.torch_graphs import (  # noqa: E402
    kinds_inputs,
    plain_inputs,
    with_ids,
)

IDS = [40, 7, -3, 12]


def typed_model(types: int = 3, *, edge_features: int = 0) -> KindsModel:
    """Return a model of one kind without a name, with several types of edges; the last has attributes."""
    relations = [relation("", f"t{k}", "") for k in range(types - 1)]
    relations.append(relation("", "last", "", edge_features=edge_features))
    convs = {k: sage(4, 4, 5) for k in range(types)}
    if edge_features:
        more = {"target_channels": 4, "edge_channels": edge_features}
        convs[types - 1] = {"type": "gatv2_conv", "in_channels": 4, "out_channels": 5, **more}
    return kinds_model([hetero(convs, "max")], [""], {"": 4}, relations)


def with_learned(features: int, *, strings: bool = False, types: int = 1) -> KindsModel:
    """Return a model of one kind with learned rows beside features, or without."""
    ids = [f"v{one}" for one in IDS] if strings else IDS
    tables = learned_weights("", ids, np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32))
    declared = {"": {"rows": {"emb": 3}, "count": 4, "ids": "string" if strings else "int"}}
    relations = [relation("", f"t{k}", "") for k in range(types)]
    joined = by_kind(**{"": [{"type": "join", "of": ["emb", "."] if features else ["emb"]}]})
    layers = [joined, hetero({k: sage(3 + features, 3 + features, 2) for k in range(types)})]
    return kinds_model(layers, [""], {"": features}, relations, learned=declared, tables=tables)


def by_type(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by dicts as those of a module of edge types."""
    edges = list(given["edge_index_dict"].values())
    types = torch.cat([torch.full((one.shape[1],), number) for number, one in enumerate(edges)])
    order = torch.randperm(len(types), generator=torch.Generator().manual_seed(1))
    return {
        "x": given["x_dict"].get(""),
        "edge_index": torch.cat(edges, dim=1)[:, order],
        "edge_type": types[order],
        "edge_weight": torch.cat(list(given["edge_weight_dict"].values()))[order],
    }


def test_edge_types_and_dicts_are_two_calls_of_one_model() -> None:
    model = typed_model()
    graph, module = random_kinds_graph(model, 3), module_of(model)
    given = kinds_inputs(model, graph)
    expected = oracle.forward(model, graph)[""]
    of_dicts = module(*given.values())
    assert list(of_dicts) == [""]
    by_name = module(**by_type(given))
    by_place = module(*by_type(given).values())
    for rows in (
        of_dicts[""],
        by_name,
        by_place,
        module(given["x_dict"], edge_index_dict=given["edge_index_dict"])[""],
    ):
        assert off([rows.detach().numpy()], [expected]) < 1e-5


def test_attributes_of_one_type_come_with_those_of_all() -> None:
    model = typed_model(edge_features=2)
    graph, module = random_kinds_graph(model, 3), module_of(model)
    given = kinds_inputs(model, graph)
    edges, [attr] = list(given["edge_index_dict"].values()), given["edge_attr_dict"].values()
    types = torch.cat([torch.full((one.shape[1],), number) for number, one in enumerate(edges)])
    every = torch.cat([torch.ones(len(types) - len(attr), 2), attr])  # those of other types are not read
    rows = module(given["x_dict"][""], torch.cat(edges, dim=1), types, edge_attr=every)
    assert off([rows.detach().numpy()], [oracle.forward(model, graph)[""]]) < 1e-5


@pytest.mark.parametrize("features", [0, 2])
@pytest.mark.parametrize("strings", [False, True])
def test_ids_of_a_model_of_one_kind(features: int, strings: bool) -> None:
    model = with_learned(features, strings=strings)
    module, graph = module_of(model), random_kinds_graph(model, 1, vertices=6, edges=12)
    asked: Any = [7, 12, 99, 40, 7, -3]
    asked = [f"v{one}" for one in asked] if strings else asked
    table = {
        f"v{one}" if strings else one: row for one, row in zip(sorted(IDS), model.weights["learned..rows"], strict=True)
    }
    if strings:
        keys = model.learned_rows()[""]
        table = {one: keys.find(digests_of([one.encode()]))[0][0] for one in asked}
    graph.x[0][:, features:] = [table.get(one, np.zeros(3)) for one in asked]
    expected = [oracle.forward(model, graph)[""]]
    edges = torch.from_numpy(np.stack([graph.edges[0].src, graph.edges[0].dst]))
    x = torch.from_numpy(graph.x[0][:, :features]) if features else None
    forms = [asked, np.array(asked), np.array(asked, object) if strings else torch.tensor(asked)]
    for ids in (*forms, {"": asked}):
        assert off([module(x, edges, ids=ids).detach().numpy()], expected) < 1e-5
    of_dicts = module({"": x} if features else {}, {("", "t0", ""): edges}, ids={"": asked})
    assert off([of_dicts[""].detach().numpy()], expected) < 1e-5
    module(x, edges, ids=asked).sum().backward()
    gradient = dict(module.named_parameters())["learned..rows"].grad
    assert (gradient.abs().sum(dim=1) > 0).any()


def test_arguments_come_from_the_data_of_a_live_graph() -> None:
    for model, seed in ((random_model_of_kinds(seed, strings=seed % 4 == 2), seed) for seed in range(12)):
        if len(model.kinds) == 1:
            continue
        graph, ids = with_ids(model, random_kinds_graph(model, seed), seed)
        of_kind = [np.array(ids.get(kind, range(len(x)))) for kind, x in zip(model.kinds, graph.x, strict=True)]
        of_kind = [one.astype(object) if one.dtype.kind == "U" else one for one in of_kind]
        features = [x[:, :width] for x, width in zip(graph.x, model.kinds.values(), strict=True)]
        reads = [bool(one.edge_features) for one in model.relations]
        data = graph_data(of_kind, graph._replace(x=features), model.features.kinds, reads)
        module = module_of(model)
        rows = [one.detach().numpy() for one in module(**module.arguments_of(data)).values()]
        assert off(rows, [*oracle.forward(model, graph).values()]) < 1e-5
    model = typed_model(edge_features=2)
    graph = random_kinds_graph(model, 1)
    data = graph_data([np.arange(len(graph.x[0]))], graph, model.features.kinds, [False, False, True])
    module = module_of(model)
    assert off([module(**module.arguments_of(data)).detach().numpy()], [oracle.forward(model, graph)[""]]) < 1e-5
    with pytest.raises(ModuleInputError, match="data: got Data, but the model has 3 kinds of vertices; expected H"):
        of_kinds()[0].arguments_of(data)
    plain_module, given = plain()
    assert plain_module(**plain_module.arguments_of(Data(**given))).equal(plain_module(**given))


def plain() -> tuple[Any, dict[str, Any]]:
    model = make_model(1, [conv("gine_conv", 6, 4, edge_channels=3)])
    return module_of(model), plain_inputs(random_graph(1), edge_features=3)


def typed() -> tuple[Any, dict[str, Any]]:
    model = typed_model()
    return module_of(model), by_type(kinds_inputs(model, random_kinds_graph(model, 1)))


def of_kinds() -> tuple[Any, dict[str, Any]]:
    model = kinds_model([sage_everywhere(KINDS, 3)], ["user"])
    return module_of(model), kinds_inputs(model, random_kinds_graph(model, 1))


def learned(features: int = 2) -> tuple[Any, dict[str, Any]]:
    model = with_learned(features)
    given = kinds_inputs(model, random_kinds_graph(model, 1, vertices=3, edges=2), {"": [1, 2, 3]})
    return module_of(model), given


BUYS = ("user", "buys", "item")


def changed(name: str, key: Any, value: Any) -> dict[str, Any]:
    """Return a change of an argument that is a dict: another value of a key, or without the key."""
    return {name: lambda old: {k: v for k, v in {**old, key: value}.items() if v is not None}}


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "width of rows": (plain, {"x": torch.zeros(50, 5)}, r"x: got shape (50, 5), expected (n, 6)"),
    "type of rows": (plain, {"x": torch.zeros(50, 6).double()}, r"x: got torch.float64, expected torch.float32"),
    "no rows": (plain, {"x": None}, "x: got nothing, expected a torch.Tensor"),
    "rows of numpy": (plain, {"x": np.zeros((50, 6))}, "x: got ndarray, expected a torch.Tensor"),
    "shape of edges": (plain, {"edge_index": torch.zeros(3, 4).long()}, "edge_index: got torch.int64 (3, 4), expected"),
    "type of edges": (plain, {"edge_index": torch.zeros(2, 4)}, "edge_index: got torch.float32 (2, 4), expected"),
    "a target that is not there": (
        plain,
        {"edge_index": torch.tensor([[0], [50]]), "edge_weight": None, "edge_attr": None},
        "edge_index: the target 50 is no vertex; there are 50",
    ),
    "a negative source": (
        plain,
        {"edge_index": torch.tensor([[0, -1], [1, 2]]), "edge_weight": None, "edge_attr": None},
        "edge_index: the source -1 is no vertex",
    ),
    "weights of other edges": (plain, {"edge_weight": torch.ones(7)}, "edge_weight: got shape (7,), expected ("),
    "attributes too narrow": (plain, {"edge_attr": lambda old: old[:, :2]}, ", 2), expected ("),
    "a type that is not there": (
        typed,
        {"edge_type": lambda old: old + 1},
        "edge_type: got 3, which is no type of the model; its types are 0 t0, 1 t1, 2 last",
    ),
    "types of floats": (typed, {"edge_type": lambda old: old.float()}, "edge_type: got torch.float32 ("),
    "attributes that nothing reads": (
        typed,
        {"edge_attr": torch.ones(3, 2)},
        "edge_attr: got shape (3, 2), but the model reads no attributes there; leave it out",
    ),
    "ids that nothing reads": (typed, {"ids": [1, 2]}, "ids: the model has no learned rows; leave them out"),
    "a kind that is missing": (of_kinds, changed("x_dict", "shop", None), "x_dict: 'shop' is missing; expected"),
    "a kind that is not there": (of_kinds, changed("x_dict", "shops", 1), "x_dict: 'shops' is no key of the model"),
    "a relation that is missing": (
        of_kinds,
        changed("edge_index_dict", ("item", "rev_buys", "user"), None),
        "edge_index_dict: ('item', 'rev_buys', 'user') is missing; expected ('user', 'buys', 'item'), ",
    ),
    "a key of another form": (of_kinds, changed("edge_index_dict", "buys", 1), "edge_index_dict: 'buys' is no key"),
    "edges past the kind": (
        of_kinds,
        changed("edge_index_dict", BUYS, torch.tensor([[0], [33]]))
        | {"edge_weight_dict": None},
        "edge_index_dict[('user', 'buys', 'item')]: the target 33 is no vertex; there are 33",
    ),
    "weights of a relation": (
        of_kinds,
        changed("edge_weight_dict", BUYS, torch.ones(2)),
        "edge_weight_dict[('user', 'buys', 'item')]: got shape (2,), expected (",
    ),
    "attributes of a relation": (
        of_kinds,
        changed("edge_attr_dict", BUYS, torch.ones(2, 2)),
        "edge_attr_dict[('user', 'buys', 'item')]: got shape (2, 2), but the model reads no attributes there",
    ),
    "rows of a kind": (of_kinds, changed("x_dict", "item", torch.ones(3, 9)), "x_dict['item']: got shape (3, 9)"),
    "no dict": (of_kinds, {"edge_weight_dict": [1]}, "edge_weight_dict: got list, expected a dict with keys ('user', "),
    "ids of a kind without": (of_kinds, {"ids": {"user": [1]}}, "ids: 'user' is no key of the model; expected none"),
    "no ids": (learned, {"ids": None}, "ids['']: is missing, though the model has a learned row for each id"),
    "ids of strings": (learned, {"ids": {"": ["a", "b", "c"]}}, "ids['']: got strings, expected int64, as in training"),
    "ids of floats": (learned, {"ids": {"": [1.0, 2.0, 3.0]}}, "ids['']: got float64, expected int64"),
    "too few ids": (learned, {"ids": {"": [1]}}, "ids['']: got 1 ids, expected one for each of 3 rows"),
    "rows beside learned ones": (
        lambda: learned(0),
        {"x_dict": {"": torch.ones(3, 0)}},
        "x_dict: the kind '' has learned rows alone; leave it out, and give its ids",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_named(what: str) -> None:
    make, changes, says = WRONG[what]
    module, given = make()
    module(**given)
    given |= {name: change(given[name]) if callable(change) else change for name, change in changes.items()}
    with pytest.raises(ModuleInputError, match=re.escape(says)) as error:
        module(**given)
    assert isinstance(error.value, InputError) and isinstance(error.value, ValueError)


def test_arguments_by_name_and_place() -> None:
    module, given = typed()
    for changes, says in (
        (
            {"edge_types": 1},
            r"got an argument 'edge_types', expected \(x, edge_index, edge_type, edge_weight, edge_attr",
        ),
        ({"edge_index": None}, r"lacks the argument 'edge_index'"),
    ):
        named = {name: value for name, value in (given | changes).items() if value is not None}
        with pytest.raises(TypeError, match=says):
            module(**named)
    with pytest.raises(TypeError, match="the argument 'x' twice"):
        module(given["x"], **given)
    with pytest.raises(TypeError, match="got 7 arguments"):
        module(*range(7))


def test_double_takes_rows_in_float64() -> None:
    module, given = plain()
    module.double()
    with pytest.raises(ModuleInputError, match=r"x: got torch.float32, expected torch.float64"):
        module(**given)
    assert module(**{k: v if k == "edge_index" else v.double() for k, v in given.items()}).dtype == torch.float64


def test_heads_of_kinds_are_named() -> None:
    heads = {"user": [{"type": "linear", "in_channels": 3, "out_channels": 2}]}
    model = kinds_model([sage_everywhere(KINDS, 3)], ["user", "item"], KINDS, RELATIONS, heads=heads)
    module, rows = module_of(model), torch.ones(4, 3)
    assert module.logits(rows, "user").shape == (4, 2)
    assert module.logits(rows, kind="user").requires_grad
    for kind, says in (
        ("item", "no head for 'item'"),
        ("shop", "a kind that is returned: 'user', 'item'"),
        ("", "got ''"),
    ):
        with pytest.raises(ModuleInputError, match=says):
            module.logits(rows, kind)
    with pytest.raises(ModuleInputError, match=r"rows: got shape \(4, 2\), expected \(n, 3\)"):
        module.logits(torch.ones(4, 2), "user")
    with pytest.raises(ModuleInputError, match="logits: the model has no head"):
        module_of(make_model(1, [conv("gcn_conv", 6, 4)])).logits(torch.ones(3, 4))
    scores = module.scores(rows, torch.full((4, 3), 2.0), "user", "item")
    assert scores.tolist() == [6.0] * 4
    with pytest.raises(ModuleInputError, match=r"right: got shape \(2, 3\), expected that of left, \(4, 3\)"):
        module.scores(rows, rows[:2], "user", "item")


def test_a_module_says_what_it_is() -> None:
    text = repr(of_kinds()[0])
    assert "user,buys,item: sage_conv 6 -> 3" in text
    assert "without dropout, running statistics and shared weights" in text
    assert repr(plain()[0]).splitlines()[:2] == ["PlainModule(", "  (0): gine_conv 6 -> 4"]
