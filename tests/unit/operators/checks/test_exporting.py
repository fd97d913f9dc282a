"""Checks at export: answers stand in model.json, and a wrong declaration is not written."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from torch_geometric.nn import SAGEConv

import freshet
from freshet.errors import InputError
from freshet.gnn.answers import LayerAnswers
from freshet.gnn.describe import describe_data, describe_text
from freshet.gnn.kinds.model import load_any_model
from freshet.gnn.layers.own.own_layer import declared
from freshet.gnn.model import ModelError, load_model, save_model
from freshet.gnn.pyg.export import export_model
from freshet.job.commands.layer import check as check_command
from freshet.operators.checks import layers
from freshet.operators.checks.aggregates import MERGED
from freshet.operators.checks.exporting import RefutedLayerError, answers_at_export
from freshet.operators.checks.proofs.solving import NO_TARGET
from tests.support.graphs.kinds import hetero, kinds_model, random_model_of_kinds, relation
from tests.support.graphs.messages import messages_by_kind, relation_layer, written_models
from tests.unit.operators.checks.test_layers import WRONG_MODULE, wrong_model

CLAIMS = 6


def test_answers_stand_in_the_model_and_are_no_part_of_its_identity(tmp_path: Path) -> None:
    module = SAGEConv(3, 2)
    freshet.export_model(module, tmp_path / "M")
    model = load_model(tmp_path / "M")
    assert model.sha256() == export_model(module, tmp_path / "plain").sha256()
    (found,) = model.checks
    assert (found.place, len(found.answers)) == ("layer 1 sage_conv", CLAIMS)
    assert json.loads((tmp_path / "M" / "model.json").read_bytes())["checks"] == [found.as_json()]
    assert describe_data(tmp_path / "M")["checks"] == [found.as_json()]
    assert "a full pass makes the same: searched 64 cases" in " ".join(describe_text(tmp_path / "M").split())
    assert "checks" not in json.loads((tmp_path / "plain" / "model.json").read_bytes())
    save_model(model, tmp_path / "again")
    assert (tmp_path / "again" / "model.json").read_bytes() == (tmp_path / "M" / "model.json").read_bytes()


def test_each_relation_of_a_model_with_kinds_has_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model_of_kinds(0)
    found = answers_at_export(model)
    assert [(one.place, len(one.answers)) for one in found] == [
        ("layer 1 sage_conv of r0", 6),
        ("layer 1 gat_conv of r1", 3),
        ("layer 2 edge_conv of r0", 4),
        ("layer 2 gat_conv of r1", 3),
        ("layer 3 graph_conv of r1", 5),
    ]
    save_model(model.model_copy(update={"checks": found}), tmp_path)
    assert load_any_model(tmp_path).checks == found
    monkeypatch.setattr(layers, "check_streams", partial(layers.check_streams, streams=3))
    check_command(str(tmp_path))
    first, *_, of_model, streams = capsys.readouterr().out.splitlines()
    assert (first, of_model) == ("layer 1 sage_conv of r0", "model")
    assert streams == "  streams along r0, r1 in several parts make what a full pass makes: searched 3 cases"


def test_messages_of_programs_on_relations_are_checked_by_themselves() -> None:
    """Aggregates with messages of their widths, and what makes messages and rows; a full pass where widths are one.

    The model is tried on streams along all relations with such messages.
    """
    found = {one.place: [answer.claim for answer in one.answers] for one in answers_at_export(messages_by_kind(0))}
    assert found.pop("model") == ["streams along buys, follows, rev_buys in several parts make what a full pass makes"]
    of_both = "message: a row depends on itself alone"
    assert of_both in found["layer 1 message_conv of follows"] and of_both in found["layer 1 message_conv of buys"]
    passes = {place for place, claims in found.items() if "a full pass makes the same" in claims}
    assert found.keys() - passes == {"layer 1 message_conv of buys"}


@pytest.mark.parametrize("name", ["OfDoubled", "Dropout", "OfAddedLargest"])
def test_a_wrong_declaration_is_refused_with_its_smallest_case(name: str) -> None:
    """Also where it is the conv of a relation."""
    with pytest.raises(RefutedLayerError, match=r"layer 1 own_layer: .*: refuted\n.*\n[\s\S]*Nothing was written"):
        answers_at_export(wrong_model(name))
    ends = relation("user", "buys", "item"), {"user": 2, "item": 3}
    spec = declared(f"{WRONG_MODULE}:{name}", {}, 2, target_channels=3).model_dump(mode="json")
    with pytest.raises(RefutedLayerError, match=r"layer 1 own_layer of buys: .*: refuted\n.*\n[\s\S]*Nothing was w"):
        answers_at_export(kinds_model([hetero({0: spec})], ["item"], ends[1], [ends[0]]))


def test_written_layers_on_relations_are_checked_as_in_one_kind() -> None:
    """Each function on rows of its own width, and the aggregate; a class without `target` reads none, by its form."""
    convs = {k: relation_layer(name, 2, 3, 2, 0) for k, name in enumerate(("Gate", "Plain", "Median"))}
    relations = [relation("user", f"r{k}", "item") for k in convs]
    model = kinds_model([hetero(convs)], ["item"], {"user": 2, "item": 3}, relations)
    found = {one.place: {answer.claim: answer for answer in one.answers} for one in answers_at_export(model)}
    names = ("source", "target", "own", "message", "update")
    rows = {f"{name}: a row depends on itself alone" for name in names}
    assert rows < found["layer 1 own_layer of r0"].keys()
    plain = found["layer 1 own_layer of r1"]
    assert not {f"{name}: a row depends on itself alone" for name in ("target", "own")} & plain.keys()
    assert plain[NO_TARGET].answer == "proved"
    assert MERGED.claim in plain and MERGED.claim not in found["layer 1 own_layer of r2"]
    (streams,) = found["model"].values()
    assert streams.answer == "searched" and streams.cases == 20


def test_nothing_is_written_where_checks_refuse(tmp_path: Path) -> None:
    def refuse(model: object) -> list[LayerAnswers]:
        raise RefutedLayerError

    with pytest.raises(InputError):
        export_model(torch.nn.ModuleList([SAGEConv(3, 2)]), tmp_path / "M", checks=refuse)
    assert not (tmp_path / "M").exists()


def test_written_layers_are_checked_on_streams_too() -> None:
    model = written_models(2)["power_mean"]()
    *others, last = answers_at_export(model)
    assert others and last.place == "model" and last.answers[0].cases == 20


def test_what_is_no_answer_is_refused(tmp_path: Path) -> None:
    freshet.export_model(SAGEConv(3, 2), tmp_path)
    spec = json.loads((tmp_path / "model.json").read_bytes())
    spec["checks"][0]["answers"][0]["answer"] = "sure"
    (tmp_path / "model.json").write_text(json.dumps(spec))
    with pytest.raises(ModelError, match="checks"):
        load_model(tmp_path)
