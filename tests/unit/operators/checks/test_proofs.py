"""Proofs by z3: conditions of decoupling, aggregates that run on symbols, and what does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshet.gnn.declarations import MessageConv
from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.layers.own.program import DeclaredMessage
from freshet.operators.checks.layers import check_layer, is_own
from freshet.operators.checks.proofs.programs import NOT_LINEAR, READS_TARGET, with_facts
from freshet.operators.checks.proofs.solving import LINEAR, NO_TARGET, ProofQuestion, ask, linear_question
from scripts.tools.paper_models import PAPER_MODELS, by_root, divided, group_question, printed_fourth, table
from tests.support.graphs.kinds import Spec
from tests.support.graphs.messages import message_conv, messages_by_kind, rows, step
from tests.unit.test_imports import ROOT

pytest.importorskip("z3")


@pytest.mark.parametrize("model", PAPER_MODELS, ids=lambda one: one.name)
def test_sums_of_the_papers_models_decouple_and_messages_of_four_read_their_target(model: object) -> None:
    answers = {name: one and one.answer for name, one in model.answers().items()}  # type: ignore[attr-defined]
    reads = model.name in ("GAT", "G-GCN", "A-GNN", "RGAT")  # type: ignore[attr-defined]
    assert answers == dict.fromkeys(("C2", "C3", "C4", "C5"), "proved") | {"C6": "refuted" if reads else "proved"}


@pytest.mark.parametrize("combine", [divided, by_root])
def test_the_fourth_condition_as_it_is_printed_is_refuted(combine: object) -> None:
    answer = ask(printed_fourth(combine))  # type: ignore[arg-type]
    assert answer is not None and answer.answer == "refuted" and "does not hold" in answer.case


def test_each_of_the_papers_models_is_run_and_those_that_nothing_exports_are_written(tmp_path: Path) -> None:
    runs = pytest.importorskip("scripts.tools.paper_runs")
    assert {one.name for one in PAPER_MODELS} == runs.MODULES.keys() | runs.WRITTEN.keys()
    assert [runs.make(name, tmp_path / name) for name in runs.WRITTEN] == ["`comm_net_conv`", "`pin_sage_conv`"]
    assert "attr" in str(runs.records(attributed=True, typed=False))


def test_a_maximum_cannot_be_taken_back_and_a_relu_is_not_linear() -> None:
    matrix = np.ones((2, 3))
    assert [one and one.answer for one in (
        ask(group_question(np.maximum)), ask(linear_question(lambda x: np.maximum(x, 0), 2)),
        ask(linear_question(lambda x: x @ matrix, 2)),
    )] == ["refuted", "refuted", "proved"]  # fmt: skip


def fold(m: np.ndarray) -> np.ndarray:
    shift = m[:, 0].max()
    weights = np.exp(m[:, 0] - shift)
    return np.stack([shift, weights.sum(), (weights * m[:, 1]).sum()])


def merged(m: np.ndarray, *, shifts: bool) -> np.ndarray:
    one, other = fold(m[:1]), fold(m[1:])
    shift = np.maximum(one[0], other[0])
    a, b = (np.exp(one[0] - shift), np.exp(other[0] - shift)) if shifts else (1, 1)
    return (one[2] * a + other[2] * b) / (one[1] * a + other[1] * b)


@pytest.mark.parametrize(("shifts", "verdict"), [(True, "proved"), (False, "refuted")])
def test_a_softmax_merges_with_its_shift_alone(shifts: bool, verdict: str) -> None:
    question = ProofQuestion(
        "merge", {"m": (2, 2)}, lambda m: merged(m, shifts=shifts), lambda m: fold(m)[2] / fold(m)[1]
    )
    answer = ask(question)
    assert answer is not None and answer.answer == verdict


def test_what_does_not_run_on_symbols_or_is_shown_by_no_floats_has_no_answer() -> None:
    m: dict[str, tuple[int, ...]] = {"m": (2, 1)}
    assert ask(ProofQuestion("sorted", m, lambda m: np.sort(m, axis=0), lambda m: m)) is None
    assert ask(ProofQuestion("exp", m, lambda m: np.exp(m[:1] * 2), lambda m: np.exp(m[:1]) * np.exp(m[:1]))) is None


def declared(*program: Spec, **options: Any) -> DeclaredMessage:
    """A conv of rows of width 2, without weights."""
    return DeclaredMessage(MessageConv.model_validate(message_conv(2, 2, *program, **options)), {})


DIFFERENCE = (step("sub", "source", "target"), step("add", "0", "target"))
BY_LOG = (step("exp", "target"), step("log", "0"), step("sub", "1", "target"), step("add", "2", "source"))
GATE = (rows("target", "sigmoid"), step("mul", "0", "source"))
RELU = (step("sub", "source", "target"), rows("0", "relu"))
FACTS = {
    "a target that cancels": (DIFFERENCE, {NO_TARGET: "proved", LINEAR: "proved"}),
    "a gate of the target": (GATE, {READS_TARGET: "proved", LINEAR: "proved"}),
    "a relu of both ends": (RELU, {READS_TARGET: "proved", NOT_LINEAR: "proved"}),
    "a logarithm that cancels": (BY_LOG, {NO_TARGET: "searched", LINEAR: "searched"}),
    "a sum of columns": ((step("sum_columns", "source"), step("repeat", "0", times=2)), {LINEAR: "proved"}),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_programs_are_proved_or_shown_by_numbers(name: str) -> None:
    program, wanted = FACTS[name]
    found = with_facts(declared(*program), [])
    assert {one.claim: one.answer for one in found} == wanted
    for one in found:
        by_numbers = one.claim in (READS_TARGET, NOT_LINEAR)
        assert ("does not hold" if by_numbers else "symbols" if one.answer == "searched" else "by z3") in one.case


def test_a_message_that_is_too_wide_for_a_solver_is_searched() -> None:
    program = step("sub", "source", "target"), step("add", "0", "target")
    spec = MessageConv.model_validate(message_conv(64, 64, *program, aggr="max"))
    (answer,) = with_facts(DeclaredMessage(spec, {}), [])
    assert (answer.claim, answer.words) == (NO_TARGET, "searched 200 cases") and "more than 48" in answer.case


def test_a_program_that_is_wrongly_taken_for_linear_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MessageConv, "is_linear", True)
    (answer,) = with_facts(declared(rows("source", "relu")), [])
    assert (answer.claim, answer.answer) == (LINEAR, "refuted") and answer.case.count("[") == 4


def test_a_message_of_several_widths_and_weights_has_facts_in_a_check() -> None:
    first = compile_kinds(messages_by_kind(0)).layers[0].relations
    claims = [{one.claim for one in check_layer(of, per_size=1, facts=True)} for of in first if is_own(of)]
    some = NO_TARGET, READS_TARGET, NOT_LINEAR
    assert [[one in of for one in some] for of in claims] == [
        [True, False, False],
        [False, True, False],
        [False, True, True],
    ]


def test_no_worker_loads_it() -> None:
    loads = "freshet.operators.flink.stage_shells, freshet.operators.checks.layers"
    code = f"import sys, {loads}; assert 'z3' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


def test_the_table_of_the_docs_is_what_the_script_makes() -> None:
    page = (ROOT / "docs" / "measured" / "layers.md").read_text()
    assert table() in page
