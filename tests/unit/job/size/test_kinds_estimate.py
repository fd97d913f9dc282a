"""`freshet size` of models with kinds: each kind takes what its own widths make, and counts are given by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model, save_model
from freshet.job import cli
from freshet.job.errors import UsageError
from freshet.job.size import miniature
from freshet.job.size.counts import graph_size
from freshet.job.size.estimate import estimate
from freshet.job.size.miniature import GraphSize, operators_of, tables_of, used_bytes
from freshet.kinds import KindsError
from freshet.operators.factory import load_plan
from tests.support.graphs.kinds import kinds_model, relation, sage_everywhere
from tests.support.graphs.models import conv, make_model
from tests.unit.operators.storage.test_kinds import different_convs

WIDTHS, OUT = {"user": 768, "item": 8}, 16
APART = [relation("user", "follows", "user"), relation("item", "like", "item")]


def layered(relations: list[dict[str, object]]) -> KindsModel:
    layers = [sage_everywhere(WIDTHS, OUT, relations), sage_everywhere(dict.fromkeys(WIDTHS, OUT), OUT, relations)]
    return kinds_model(layers, list(WIDTHS), WIDTHS, relations)


def state_of(folder: Path, model: Model | KindsModel, shape: GraphSize, *prefixes: str) -> int:
    """The bytes of state in Storages and Tails, of tables whose names begin so."""
    save_model(model, folder)
    tables, _ = tables_of(folder, shape)
    every = [one for name, found in tables.items() if name != "partitioner" for one in found]
    return sum(used_bytes(one) for one in every if one.name.startswith(prefixes or ("",)))


@pytest.mark.parametrize("parts", [1, 3])
def test_kinds_768_and_8_wide_take_what_jobs_of_one_kind_of_these_widths_take(tmp_path: Path, parts: int) -> None:
    sizes = {"user": (1500, 6000), "item": (4000, 12_000)}
    counts = GraphSize(*zip(*sizes.values(), strict=True), parts)
    for code, (kind, (n, m)) in enumerate(sizes.items()):
        sole = make_model(1, [conv("sage_conv", WIDTHS[kind], OUT), conv("sage_conv", OUT, OUT)])
        alone = state_of(tmp_path / kind, sole, GraphSize((n,), (m,), parts))
        beside = state_of(tmp_path / "both", layered(APART), counts, f"k{code}.", f"r{code}.")
        assert beside == pytest.approx(alone, rel=0.1), kind


def test_rows_are_as_wide_as_their_kind_where_relations_lead_between_kinds(tmp_path: Path) -> None:
    between = [*APART, relation("user", "buys", "item"), relation("item", "rev_buys", "user", mirrors=2)]
    save_model(layered(between), tmp_path / "M")
    tables, _ = tables_of(tmp_path / "M", GraphSize((200, 300), (500, 500, 500, 0)))
    assert {one.name: one.width for one in tables["storage0"] if one.name.endswith(".x")} == {"k0.x": 768, "k1.x": 8}
    sums = {one.name: one.width for one in tables["storage1"] if one.name.endswith((".z", ".s"))}
    assert sums == {"r0.z": 16, "r0.s": 16, "r1.z": 8, "r1.s": 8, "r2.z": 16, "r2.s": 16, "r3.s": 8}


@pytest.mark.parametrize(("parts", "id_kind", "edge_keys"), [(1, "int", ""), (3, "string", ""), (2, "int", "int")])
def test_a_smaller_graph_tells_what_the_whole_one_takes(
    tmp_path: Path, parts: int, id_kind: str, edge_keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(different_convs(), tmp_path / "M")
    shape = GraphSize((3000, 2000, 20), (15_000, 0, 5000, 2000), parts, id_kind, edge_keys=edge_keys)
    whole = operators_of(tmp_path / "M", shape)
    monkeypatch.setattr(miniature, "EDGES_MAX", 20_000)
    small = operators_of(tmp_path / "M", shape)
    assert list(small) == list(whole)
    for name, held in whole.items():
        assert small[name].memory == pytest.approx(held.memory, rel=0.2), name
        assert small[name].state == pytest.approx(held.state, rel=0.2), name


VERTICES = ("user=50", "item=40", "shop=5")
EDGES = ("rates=300", "follows=200", "shop,sells,item=10")


def test_counts_are_given_by_kind_and_relation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(different_convs(), tmp_path)
    plan = load_plan(str(tmp_path))
    shape = graph_size(plan, VERTICES, EDGES)
    assert (shape.vertices, shape.edges) == ((50, 40, 5), (300, 0, 200, 10))
    assert graph_size(plan, VERTICES, ["100"]).edges == (33, 0, 33, 34)
    both = estimate(tmp_path, shape)
    assert both.change_log == 50 * (9 + 4 * 4) + 40 * (9 + 4 * 4)
    given = [word for option, counts in (("--vertices", VERTICES), ("--edges", EDGES)) for one in counts
             for word in (option, one)]  # fmt: skip
    with pytest.raises(SystemExit) as end:
        cli.main(["size", str(tmp_path), *given, "--json"])
    assert not end.value.code
    assert json.loads(capsys.readouterr().out) == both.as_json()


@pytest.mark.parametrize(
    ("vertices", "edges", "said"),
    [
        (["90"], EDGES, "--vertices 90: expected NAME=N with one of the model's kinds: user, item, shop"),
        ([*VERTICES, "card=4"], EDGES, "--vertices card=4: expected NAME=N with one of the model's kinds"),
        (VERTICES[:2], EDGES, "--vertices: missing for shop; give --vertices shop=N"),
        ([*VERTICES, "user=4"], EDGES, "--vertices user=4: user is given twice"),
        (["user=0", *VERTICES[1:]], EDGES, "--vertices user=0: expected a whole number from 1 on"),
        (VERTICES, EDGES[:2], "--edges: missing for sells; give --edges sells=N"),
        (VERTICES, [*EDGES, "rev_rates=9"], "--edges rev_rates=...: these follow 'rates' by themselves; leave it out"),
        (VERTICES, ["rates=many", *EDGES[1:]], "--edges rates=many: expected a whole number from 0 on"),
        (VERTICES, [*EDGES[:2], "sells=201"], "--edges sells=201: more than the 200 pairs of 5 and 40 vertices"),
    ],
)
def test_other_counts_are_refused(vertices: list[str], edges: list[str], said: str, tmp_path: Path) -> None:
    save_model(different_convs(), tmp_path)
    with pytest.raises(UsageError) as refused:
        graph_size(load_plan(str(tmp_path)), vertices, edges)
    if "pairs" in said:
        assert graph_size(load_plan(str(tmp_path)), vertices, edges, edge_keys="int").edges[-1] == 201
    assert str(refused.value).startswith(said)


def test_models_without_kinds_take_numbers_alone_and_edges_between_kinds_have_a_direction(tmp_path: Path) -> None:
    save_model(make_model(1, [conv("sage_conv", 3, 2)]), tmp_path / "sole")
    with pytest.raises(UsageError, match="--vertices user=5: the model has no kinds of vertices; give one number"):
        graph_size(load_plan(str(tmp_path / "sole")), ["user=5"], ["4"])
    save_model(layered([*APART, relation("user", "buys", "item")]), tmp_path / "between")
    with pytest.raises(KindsError, match="--undirected: edges of 'buys' lead from user to item"):
        graph_size(load_plan(str(tmp_path / "between")), ["user=5", "item=5"], ["4"], undirected=True)
