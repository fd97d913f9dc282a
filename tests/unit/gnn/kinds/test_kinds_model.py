"""Models with kinds: folders, identity, and what is refused with which words."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from freshet.gnn.kinds.model import KindsModel, build_kinds_model, load_any_model
from freshet.gnn.model import Model, ModelError, build_model, load_model, save_model
from tests.support.graphs.kinds import (
    KINDS,
    RELATIONS,
    Spec,
    by_kind,
    hetero,
    kinds_fields,
    kinds_model,
    random_weights,
    relation,
    sage,
    sage_everywhere,
)
from tests.support.graphs.messages import relation_message, through
from tests.support.graphs.models import conv, make_model

EIGHT = dict.fromkeys(KINDS, 8)
LAYERS = [
    by_kind(user=[{"type": "relu"}]),
    sage_everywhere(KINDS, 8),
    by_kind(user=[{"type": "linear", "in_channels": 8, "out_channels": 8}, {"type": "relu"}], item=[{"type": "relu"}]),
    sage_everywhere(EIGHT, 3, group="mean"),
]


def test_a_folder_gives_the_model_back(tmp_path: Path) -> None:
    model = kinds_model(LAYERS, ["user", "item"])
    save_model(model, tmp_path)
    spec = json.loads((tmp_path / "model.json").read_bytes())
    assert spec["version"] == 2 and "weights" not in spec
    assert spec["relations"][:2] == RELATIONS[:2], "defaults are left out"
    again = load_any_model(tmp_path)
    assert isinstance(again, KindsModel)
    assert again.sha256() == model.sha256()
    assert again.declaration() == model.declaration() == spec
    assert again.out_widths == {"user": 3, "item": 3}
    assert "layers.1.convs.0.lin_l.weight" in model.weights and "layers.2.layers.user.0.weight" in model.weights


def test_a_model_without_kinds_is_read_as_before(tmp_path: Path) -> None:
    model = make_model(0, [conv("sage_conv", 6, 4)])
    save_model(model, tmp_path)
    assert json.loads((tmp_path / "model.json").read_bytes())["version"] == 1
    assert isinstance(load_any_model(tmp_path), Model)
    assert load_model(tmp_path).sha256() == model.sha256()


def test_models_without_kinds_are_read_by_themselves(tmp_path: Path) -> None:
    save_model(kinds_model(LAYERS, ["user"]), tmp_path)
    with pytest.raises(ModelError, match=r"model.json: a model with kinds of vertices; .*load_any_model reads it"):
        load_model(tmp_path)


def test_the_order_of_kinds_is_part_of_the_identity() -> None:
    one = kinds_model(LAYERS, ["user"])
    fields = one.declaration()
    fields["kinds"] = dict(reversed(fields["kinds"].items()))
    other = build_kinds_model(**fields, weights=one.weights)
    assert other.sha256() != one.sha256()


def test_types_that_two_relations_share_are_named_with_their_ends() -> None:
    relations = [relation("user", "of", "item"), relation("shop", "of", "item"), relation("item", "by", "user")]
    model = kinds_model([sage_everywhere(KINDS, 8, relations)], ["item"], relations=relations)
    assert model.edge_types == ["user,of,item", "shop,of,item", "by"]


def test_the_graph_has_the_kinds_and_relations_of_the_model() -> None:
    features = kinds_model(LAYERS, ["user"]).features
    assert features.widths == (6, 4, 5)
    assert features.kinds is not None
    assert features.kinds.names == ("user", "item", "shop") and features.kinds.ends.T.tolist()[2] == [2, 1]
    assert features.kinds.mirrors().tolist() == [1, -1, 3, -1, -1]


def test_a_kind_that_is_gone_goes_on_from_rows_that_were_kept() -> None:
    """shop is reached by no relation of the first hetero_conv: its kept rows are there for the second one."""
    first = hetero({0: sage(6, 4, 8), 1: sage(4, 6, 8), 4: sage(6, 6, 8)})
    second = hetero({2: sage(5, 8, 3)})
    kept = by_kind(shop=[{"type": "keep", "name": "a"}])
    back = by_kind(shop=[{"type": "join", "of": ["a"]}])
    model = kinds_model([kept, first, back, second], ["item"])
    assert [set(flow.widths) for flow in model.flows()] == [
        {"user", "item", "shop"}, {"user", "item", "shop"}, {"user", "item"}, {"user", "item", "shop"}, {"item"},
    ]  # fmt: skip


def test_one_kind_with_relations_has_no_name() -> None:
    relations = [relation("", "cites", ""), relation("", "rev_cites", "", mirrors=0)]
    model = kinds_model([sage_everywhere({"": 5}, 4, relations, "cat")], [""], {"": 5}, relations)
    assert model.out_widths == {"": 8}


Change = Callable[[Spec], Any]


def put(where: str, value: Any) -> Change:
    """Return a change of the fields at a path such as layers.1.aggr."""

    def change(fields: Spec) -> None:
        at: Any = fields
        *steps, last = where.split(".")
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at[step]
        at[int(last) if isinstance(at, list) else last] = value

    return change


def add(where: str, value: Any) -> Change:
    return lambda fields: fields[where].append(value)


DEGREES = {"type": "gcn_conv", "in_channels": 6, "out_channels": 8, "add_self_loops": False, "degrees": "both"}
LEARNED: Spec = {"rows": {"emb": 2}, "count": 3}
GAT = {"type": "gat_conv", "in_channels": 6, "target_channels": 4, "out_channels": 8}
GATE = relation_message("gate", 6, 4, 8)
TWO_HEADS = GAT | {"add_self_loops": False, "heads": 2}
WRONG: list[tuple[Change, str]] = [
    (put("kinds", {}), "kinds: Dictionary should have at least 1 item"),
    (put("kinds", {"user\n": 6}), r"kinds: got 'user\n', expected 1 to 1024 characters in one line"),
    (put("kinds", {"": 6, "user": 6}), "kinds: got '', expected 1 to 1024 characters in one line"),
    (put("kinds", {"u" * 1025: 6}), "expected 1 to 1024 characters in one line"),
    (put("kinds", KINDS | {"user": -1}), "kinds.user: Input should be greater than or equal to 0 (got -1)"),
    (put("kinds", KINDS | {"user": 0}), "kinds: 'user' has features of width 0 and no learned rows, expected one"),
    (put("learned", {"users": LEARNED}), "learned: 'users' is no kind; kinds are 'user', 'item', 'shop'"),
    (put("learned", {"user": LEARNED}), "weights: missing ['learned.user.ids', 'learned.user.rows'], unknown none"),
    (put("learned", {"user": LEARNED, "item": LEARNED | {"ids": "string"}}), "learned: ids are int and string"),
    (put("learned", {"user": LEARNED | {"rows": {".": 2}}}), "learned.user.rows: learned rows are named ['.']"),
    (put("relations.0.source", "users"),
     "relations.0 (users,buys,item): the source 'users' is no kind; kinds are 'user', 'item', 'shop'"),
    (put("relations.0.target", 7), "relations.0.target: Input should be a valid string (got 7)"),
    (put("relations.0.type", ""), "relations.0.type: type '', expected 1 to 256 characters in one line"),
    (put("relations.0.type", "a\nb"), r"relations.0.type: type 'a\nb', expected 1 to 256 characters in one line"),
    (put("relations.2", RELATIONS[0]),
     "relations.2 (user,buys,item): a relation with this source, type and target is there already"),
    (put("relations.1.mirrors", 9), "relations.1 (item,rev_buys,user): mirrors 9, but there are 5 relations"),
    (put("relations.1.mirrors", 1), "relations.1 (item,rev_buys,user): mirrors itself"),
    (put("relations.1.mirrors", 3),
     "relations.1 (item,rev_buys,user): mirrors item,rev_sells,shop, which is a mirror itself"),
    (put("relations.1.mirrors", 2),
     "relations.1 (item,rev_buys,user): mirrors shop,sells,item, so it goes from 'item' to 'shop'"),
    (put("kinds", {f"k{n}": 1 for n in range(101)}), "kinds: Dictionary should have at most 100 items"),
    (put("relations.1.edge_features", 3),
     "relations.1 (item,rev_buys,user): edge_features 3, but user,buys,item has 0; attributes follow"),
    (add("relations", relation("item", "again", "user", mirrors=0)),
     "relations.5 (item,again,user): mirrors relations.0, as relations.1 does"),
    (add("relations", relation("user", "rates", "item", edge_features=2)),
     "relations.5 (user,rates,item): edge_features 2, but no layer reads attributes of its edges"),
    (put("layers", []), "a model needs 1 to 64 layers of hetero_conv, got 0"),
    (put("layers", 3), "layers: got int, expected a list of layers"),
    (put("layers.0.type", "sage_conv"),
     "layers.0: layer type 'sage_conv' is not supported; supported are hetero_conv, by_kind"),
    (put("layers.1.convs.0.conv", {"type": "gcn_conv", "in_channels": 6, "out_channels": 8}),
     "layers.1.convs.0 (gcn_conv) may stand in a relation within one kind alone; user,buys,item leads from "),
    (put("layers.1.convs.4.conv", DEGREES),
     "layers.1.convs.4 (gcn_conv) reads out-edges, whose degrees user,follows,user does not have in models with kinds"),
    (put("layers.1.convs.0.conv", {"type": "agnn_conv", "in_channels": 6, "out_channels": 6}),
     "layers.1.convs.0 (agnn_conv) may stand in a relation within one kind alone; user,buys,item leads from one kind "
     "to another. Those that may are graph_conv, sage_conv, gin_conv, edge_conv"),
    (put("layers.1.convs.0.conv.type", "no_conv"), "layers.1.convs.0: layer type 'no_conv' is not supported"),
    (put("layers.1.convs.0.relation", 5), "layers.1.convs.0: relation 5, but there are 5 relations"),
    (put("layers.1.convs.0.relation", 1), "layers.1.convs.1: the relation item,rev_buys,user has a conv in this layer"),
    (put("layers.1.convs.0.conv.in_channels", 7),
     "layers.1.convs.0 (sage_conv) reads rows of width 7 of the kind 'user', the source of user,buys,item, got 6"),
    (put("layers.1.convs.0.conv.target_channels", 7),
     "layers.1.convs.0 (sage_conv) reads rows of width 7 of the kind 'item', the target of user,buys,item, got 4"),
    (put("layers.1.convs.0.conv", GAT),
     "layers.1.convs.0 (gat_conv): add_self_loops in user,buys,item, but there are no self-loops between two kinds"),
    (put("layers.1.convs.0.conv", GAT | {"add_self_loops": False, "edge_channels": 3}),
     "layers.1.convs.0 (gat_conv) reads attributes of width 3, but edge_features of user,buys,item is 0"),
    (put("layers.1.convs.0.conv", GATE | {"target_channels": 5}),
     "message_conv.program.1 (rows): layer.0 (linear) reads rows of width 4, got 5"),
    (put("layers.1.convs.0.conv", GATE | {"update": [through("source", 6, 8)]}),
     "message_conv.update.0 (rows): it reads 'source', which is no earlier step; inputs are aggregate, own"),
    (put("layers.1.convs.0.conv", GATE | {"program": [through("own", 4, 8)]}),
     "message_conv.program.0 (rows): it reads 'own', which is no earlier step; inputs are source, target, weight"),
    (put("layers.1.convs.0.conv", GATE | {"out_channels": 9}),
     "message_conv: the update makes rows of width 8, expected out_channels 9"),
    (put("layers.1.convs.0.conv", relation_message("attributes", 6, 4, 8, 2)),
     "layers.1.convs.0 (message_conv) reads attributes of width 2, but edge_features of user,buys,item is 0"),
    (put("layers.1.convs.0.conv", GATE | {"existing_loops": "drop"}),
     "add_self_loops and existing_loops in user,buys,item, which message_conv has in a relation within one kind alone"),
    (put("layers.1.convs.4.conv", relation_message("gate", 6, 6, 8) | {"add_self_loops": True}),
     "in user,follows,user, which message_conv has in a relation within one kind alone, without update"),
    (put("layers.1.convs.0.conv.out_channels", 7),
     "layers.1: rows of the kind 'item' come in widths 7, 8, expected the same for aggr sum"),
    (put("layers.1.aggr", "cat"),
     "layers.2.layers.user.0 (linear) reads rows of width 8, got 16"),
    (put("layers.1.aggr", "softmax"),
     "layers.1: rows of the kind 'item': this sage_conv has no part in a softmax over relations; those that have are"),
    (put("layers", [hetero({0: GAT | {"add_self_loops": False}, 2: GAT | {"in_channels": 5}}, "softmax")]),
     "layers.0.convs.1 (gat_conv): add_self_loops in shop,sells,item"),
    (put("layers", [hetero({0: TWO_HEADS, 2: TWO_HEADS | {"in_channels": 5, "heads": 1}}, "softmax")]),
     "layers.0: rows of the kind 'item': a softmax over relations needs the same heads, channels and concat"),
    (put("layers.1.aggr", "median"), "layers.1.hetero_conv.aggr: Input should be 'sum', 'mean'"),
    (put("layers.1.convs", []), "layers.1.hetero_conv.convs: List should have at least 1 item"),
    (put("layers.1", hetero({0: sage(6, 4, 8), 4: sage(6, 6, 8)})),
     "layers.3.convs.2 (sage_conv) reads rows of the kind 'shop', the source of shop,sells,item, which is not there"),
    (put("layers.2", by_kind(users=[])),
     "layers.2: by_kind has layers of the kind 'users'; kinds are user, item, shop"),
    (put("layers.2.layers.user.0.in_channels", 9), "layers.2.layers.user.0 (linear) reads rows of width 9, got 8"),
    (put("layers.2.layers.user.0.type", "lin"), "layers.2.layers.user.0: layer type 'lin' is not supported"),
    (put("layers.2.layers.user", [{"type": "join", "of": ["a"]}]),
     "layers.2.layers.user.0 (join): nothing is kept as 'a' before it"),
    (put("out", []), "out: List should have at least 1 item"),
    (put("out", ["users"]), "out: 'users' is no kind; kinds are 'user', 'item', 'shop'"),
    (put("out", ["user", "user"]), "out: the kind 'user' is named twice"),
    (put("layers.3", hetero({0: sage(8, 8, 3)})), "out: the kind 'user' is not there behind the last layer; there are"),
    (put("edge_types", ["buys"]), "edge_types: Extra inputs are not permitted"),
    (put("version", 3), "model format version 3 with kinds: this Freshet reads version 2"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WRONG, ids=[words[:60] for _, words in WRONG])
def test_what_makes_no_sense_is_refused_by_name(change: Change, words: str) -> None:
    fields = kinds_fields(copy.deepcopy(LAYERS), ["user"], relations=copy.deepcopy(RELATIONS))
    weights = random_weights(fields)
    change(fields)
    with pytest.raises(ModelError, match=re.escape(words)):
        build_kinds_model(**fields, weights=weights)


def test_attributes_that_a_mirror_alone_reads_are_kept() -> None:
    relations = [relation("user", "rates", "item", edge_features=2)]
    relations += [relation("item", "rev_rates", "user", edge_features=2, mirrors=0)]
    rated = {"type": "gat_conv", "in_channels": 4, "target_channels": 6, "out_channels": 8, "edge_channels": 2}
    layer = hetero({0: sage(6, 4, 8), 1: rated | {"add_self_loops": False}})
    assert kinds_model([layer], ["user"], relations=relations).relations[0].edge_features == 2


def test_a_mirror_need_not_keep_attributes_that_it_does_not_read() -> None:
    relations = [relation("user", "rates", "item", edge_features=2), relation("item", "rev", "user", mirrors=0)]
    rated = {"type": "gat_conv", "in_channels": 6, "target_channels": 4, "out_channels": 8, "edge_channels": 2}
    layer = hetero({0: rated | {"add_self_loops": False}, 1: sage(4, 6, 8)})
    kinds = kinds_model([layer], ["user"], relations=relations).features.kinds
    assert kinds is not None
    assert kinds.edge_widths.tolist() == [2, 0]


def test_a_target_that_is_gone_is_no_matter_where_its_row_is_not_read() -> None:
    first = hetero({0: sage(6, 4, 8), 4: sage(6, 6, 8)})
    last = {number: sage(8, 8, 3, root_weight=False) for number in (0, 3)}
    assert kinds_model([first, hetero(last)], ["shop"]).out_widths == {"shop": 3}


def test_weights_are_checked_by_name_and_shape() -> None:
    fields = kinds_fields(LAYERS, ["user"])
    weights = random_weights(fields)
    some = weights.pop("layers.1.convs.0.lin_r.weight")
    with pytest.raises(ModelError, match=r"weights: missing \['layers.1.convs.0.lin_r.weight'\], unknown none"):
        build_kinds_model(**fields, weights=weights)
    weights["layers.1.convs.0.lin_r.weight"] = some.T.copy()
    with pytest.raises(ModelError, match=r"lin_r.weight: got shape \(4, 8\), expected \(8, 4\)"):
        build_kinds_model(**fields, weights=weights)


def test_a_conv_of_two_kinds_of_rows_is_refused_where_there_are_no_kinds() -> None:
    with pytest.raises(ModelError, match=r"layers.0: target_channels is for the convs of relations"):
        make_model(0, [sage(6, 6, 4)])
    with pytest.raises(ModelError, match=r"layers.0: mixed_heads is for the convs of relations"):
        make_model(0, [{"type": "gat_conv", "in_channels": 6, "out_channels": 8, "heads": 2, "mixed_heads": True}])


def test_whatever_stands_in_the_file_is_refused_and_never_a_traceback() -> None:
    layers = [*LAYERS, by_kind(user=[{"type": "keep", "name": "a"}, {"type": "join", "of": ["a", "."]}])]
    fields = kinds_fields(layers, ["user"])
    weights, found = random_weights(fields), {"taken": 0, "refused": 0}
    for path in paths(fields):
        for junk in (None, -1, "x", [], {"a": 1}):
            changed = copy.deepcopy(fields)
            put(path, junk)(changed)
            try:
                build_kinds_model(**changed, weights=weights)
                found["taken"] += 1
            except ModelError:
                found["refused"] += 1
    assert found["refused"] > 500 and found["taken"] < 30


def paths(at: Any, begin: str = "") -> Iterator[str]:
    inside = at.items() if isinstance(at, dict) else enumerate(at) if isinstance(at, list) else ()
    for key, value in inside:
        yield f"{begin}{key}"
        yield from paths(value, f"{begin}{key}.")


def test_an_update_is_for_relations() -> None:
    gate = relation_message("gate", 6, 6, 6) | {"target_channels": None}
    with pytest.raises(ModelError, match=r"layers.0: update is for the convs of relations, in a model with kinds"):
        build_model(layers=[gate], weights={})
