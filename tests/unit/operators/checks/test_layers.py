"""Layers of a model: wrong declarations of written ones are refuted by their smallest case, right ones pass."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from freshet.gnn.answers import OF_TWO, ClaimAnswer, LayerAnswers, is_refuted
from freshet.gnn.any_plan import load_any_plan
from freshet.gnn.describe import describe_text
from freshet.gnn.layers.own.own_layer import declared
from freshet.gnn.model import Model, build_model, save_model
from freshet.gnn.own.loading import load_layers
from freshet.gnn.own.running import WrittenLayerError
from freshet.gnn.plan import compile_plan
from freshet.job.commands.layer import check as check_command
from freshet.job.errors import UsageError
from freshet.job.run.model import unchecked_in_words
from freshet.operators.checks.aggregates import MERGED, ORDER
from freshet.operators.checks.alone import model_of_class
from freshet.operators.checks.calls import SAME_CALLS, check_calls
from freshet.operators.checks.layers import check_layer
from freshet.operators.checks.proofs.solving import LINEAR, linear_question, search
from freshet.operators.checks.rows import RowFunction, check_rows
from freshet.operators.checks.streams import StreamCheck
from tests.support.graphs.messages import written_models
from tests.support.graphs.models import conv, make_model

WRONG_MODULE = "tests.support.graphs.wrong_layers"


def wrong_model(name: str) -> Model:
    load_layers([WRONG_MODULE])
    return build_model(layers=[declared(f"{WRONG_MODULE}:{name}", {}, 2).model_dump(mode="json")], weights={})


def refuted(model: Model) -> list[ClaimAnswer]:
    (layer,) = compile_plan(model).layers
    return [one for one in check_layer(layer, per_size=40) if one.answer == "refuted"]


# the claim that is refuted, and how many lines of its case are messages or rows
WRONG = {
    # two messages show no mean of means: with one in each part it is (a + b) / 2, their mean, and a single part is not
    # merged; nor does a part without messages have a state to merge
    "OfMeans": ("states of parts merge into that of the whole", 3),
    "OfAddedLargest": ("states of parts merge into that of the whole", 2),
    "OfShiftless": ("states of parts merge into that of the whole", 2),
    "OfDoubled": ("the order of messages changes nothing", 2),
    "OfFirstFour": ("the order of messages changes nothing", 5),
    # of more than a few messages some are shown, and how many there are
    "OfFirstHundred": ("the order of messages changes nothing", 13),
    "OfLastThousand": ("the order of messages changes nothing", 13),
    "OfFullAtThousand": ("states of parts merge into that of the whole", 13),
    "OfLargeByOrder": ("the order of messages changes nothing", 2),
    "OfSortedApart": ("states of parts merge into that of the whole", 2),
    "CentredBatch": ("update: a row depends on itself alone", 2),
    "Dropout": ("message: a row depends on itself alone", 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_declaration_is_refuted_by_its_smallest_case(name: str) -> None:
    found = refuted(wrong_model(name))
    claim, most = WRONG[name]
    assert [one.claim for one in found] == [claim]
    *case, result = found[0].case.splitlines()
    assert 1 <= len(case) <= most, found[0]
    assert ("all messages at once make" in result) or ("row" in result)


@pytest.mark.parametrize(("name", "function"), [("OfRarelyMore", "fold"), ("Tiring", "update")])
def test_a_function_that_is_another_after_many_calls_is_refuted(name: str, function: str) -> None:
    (found,) = refuted(wrong_model(name))
    assert found.claim == SAME_CALLS
    given, results = found.case.splitlines()
    assert given.startswith(f"{function} of [") and results.startswith("call ") and "the first one made" in results


def test_a_search_that_is_cut_short_says_so_and_so_do_model_and_run(tmp_path: Path) -> None:
    """A model whose layers nobody tried says that."""
    load_layers(["examples.gated_sum"])
    model = written_models(2)["gated_sum"]()
    running = compile_plan(model).layers[0].running  # type: ignore[attr-defined]
    seconds = iter(range(0, 1_000_000, 10))
    found = check_calls(running, clock=lambda: next(seconds))
    assert (found.answer, found.cases) == ("searched", 1)
    assert found.case == "cut short after 3 s, at 1 of 50,000 calls of each"
    save_model(model.model_copy(update={"checks": [LayerAnswers("layer 1 own_layer", [found])]}), tmp_path / "short")
    save_model(model, tmp_path / "none")
    assert "searched 1 cases (cut short after 3 s" in " ".join(describe_text(tmp_path / "short", width=400).split())
    assert "checks at the export: none" in describe_text(tmp_path / "none", width=400)
    (said,) = unchecked_in_words(load_any_plan(tmp_path / "short"))
    assert said.startswith(f"model: layer 1 own_layer, {SAME_CALLS}: searched 1 cases (cut short after 3 s")
    (said,) = unchecked_in_words(load_any_plan(tmp_path / "none"))
    assert "its export tried none of its layers of your own" in said
    save_model(make_model(0, [conv("gin_conv", 2, 2, nn=[])]), tmp_path / "built in")
    assert not unchecked_in_words(load_any_plan(tmp_path / "built in"))


def test_a_proof_for_two_messages_heads_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what was searched, too; without a solver it says that there is none."""
    pytest.importorskip("z3")
    load_layers(["tests.support.graphs.own.right_layers"])
    model = build_model(
        layers=[declared("tests.support.graphs.own.right_layers:Total", {}, 2).model_dump(mode="json")], weights={}
    )
    (layer,) = compile_plan(model).layers
    found = {one.claim: one for one in check_layer(layer, per_size=8)}
    for claim in (ORDER.claim, MERGED.claim):
        assert found[claim].answer == "searched" and found[claim].words.startswith("searched ")
        assert found[claim].case == f"of up to 1,200 messages; proved {OF_TWO}"
    assert ClaimAnswer(ORDER.claim, "proved", case=OF_TWO).words == "proved for two messages alone"  # of former exports
    monkeypatch.setitem(sys.modules, "z3", None)
    found = {one.claim: one for one in check_layer(layer, per_size=8)}
    assert found[ORDER.claim].case == "of up to 1,200 messages; no proof: z3 is not installed"


def test_a_message_that_is_linear_alone_is_not_said_to_be() -> None:
    (layer,) = compile_plan(wrong_model("LinearAlone")).layers
    assert LINEAR not in [one.claim for one in check_layer(layer, per_size=8)]


def test_linear_is_refuted_of_a_relu_by_two_messages() -> None:
    answer = search(linear_question(lambda rows: np.maximum(rows, 0), 3))
    assert (answer.claim, answer.answer) == (LINEAR, "refuted")
    a, b, result = answer.case.splitlines()
    assert (a[:3], b[:3]) == ("a [", "b [") and result.endswith("does not hold")
    assert search(linear_question(lambda rows: rows[:, :2] - 3 * rows[:, 1:], 3)).answer == "searched"
    assert search(linear_question(lambda rows: rows + 1, 1)).answer == "refuted"


def test_rows_that_need_many_beside_them_are_shown_as_few() -> None:
    function = RowFunction("update", lambda x: x + (len(x) > 64), (1,))
    answer = check_rows(function)
    assert answer.answer == "refuted" and "... 65 rows in all" in answer.case
    assert answer.case.endswith("row 0 makes [-1], and alone [-2]")


@pytest.mark.parametrize("name", ["gated_sum", "top_k"])
def test_layers_of_the_examples_pass(name: str) -> None:
    layer = compile_plan(written_models(2)[name]()).layers[0]
    answers = check_layer(layer, per_size=40)
    assert not is_refuted(answers), "\n".join(map(str, answers))
    assert len(answers) > 5


def test_what_a_class_reads_and_is_not_given_is_drawn() -> None:
    load_layers(["examples.transformer", "examples.top_k", WRONG_MODULE])
    model, drawn = model_of_class("examples.transformer:Transformer", {}, {}, (4, 0), 0)
    assert drawn[:3] == ["--options '{\"heads\": 2}'", "--shape lin_value.weight=4x4", "--shape lin_value.bias=4"]
    assert len(drawn) == 9 and model.features.width == 4
    assert model_of_class("examples.top_k:TopK", {"weight": np.ones((3, 2))}, {"k": 1}, (2, 0), 0)[1] == []
    with pytest.raises(WrittenLayerError, match=r"Transformer.aggregate: ValueError: Softmax: .* heads 0"):
        model_of_class("examples.transformer:Transformer", {}, {"heads": 0}, (4, 0), 0)
    with pytest.raises(WrittenLayerError, match=r"message.*: ValueError: .*. Drawn for it: --shape lin_value.weight"):
        model_of_class("examples.transformer:Transformer", {}, {"heads": 3}, (4, 0), 0)


def test_a_model_is_tried_on_streams() -> None:
    assert StreamCheck.of(make_model(0, [conv("gin_conv", 2, 2, nn=[])])).answer(streams=12).answer == "searched"
    wrong = StreamCheck.of(wrong_model("OfAddedLargest")).answer()
    assert wrong.answer == "refuted"
    *events, result = wrong.case.splitlines()
    assert 2 <= len(events) <= 6, wrong
    assert all(line.split()[0] in ("add_vertex", "set_features", "add_edge") for line in events)
    assert "but a full pass makes" in result


def test_the_command_says_what_is_wrong_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        check_command(f"{WRONG_MODULE}:OfAddedLargest", as_json=True)
    assert ended.value.exit_code == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["place"] for one in found["checks"]] == ["layer 1 own_layer", "model"]
    answers = [answer for one in found["checks"] for answer in one["answers"]]
    assert {answer["answer"] for answer in answers} == {"refuted", "searched", "proved"}


def test_the_command_checks_a_model_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a solver, too, and says so."""
    monkeypatch.setitem(sys.modules, "z3", None)
    save_model(make_model(0, [conv("sage_conv", 2, 2, aggr="max")]), tmp_path)
    check_command(str(tmp_path))
    out, err = capsys.readouterr()
    assert err.startswith("no claim is proved by a solver: z3 is not installed; run `make install`")
    assert out.startswith("layer 1 sage_conv\n  the order of messages changes nothing: searched 640 cases\n")
    assert "refuted" not in out and out.endswith("searched 60 cases\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"options": "[1]"}, "--options .1.: got list, expected an object"),
        ({"options": "{"}, "--options {: no JSON"),
        ({"shape": ["w=3y"]}, "--shape w=3y: expected NAME=AxB"),
    ],
)
def test_options_of_a_class_that_do_not_do_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_command(f"{WRONG_MODULE}:OfMeans", **options)  # type: ignore[arg-type]


def test_a_module_without_a_class_is_refused() -> None:
    with pytest.raises(UsageError, match=f"{WRONG_MODULE}: neither a folder nor a class; name a class as"):
        check_command(WRONG_MODULE)
