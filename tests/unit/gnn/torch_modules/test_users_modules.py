"""Modules of exported models make the rows of the modules that users wrote.

The export itself compares: it runs the user's module and the model on graphs of all kinds and sizes, in both
precisions, with weights of 0 and below. Here the model that it runs is the torch module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.oracles.scaled import Scaled  # noqa: E402
from freshet.gnn.pyg.check import Ours  # noqa: E402
from freshet.gnn.pyg.graphs import Graphs  # noqa: E402
from freshet.gnn.pyg.own import differing  # noqa: E402
from freshet.gnn.torch_modules.graphs import ModelPass, numpy_pass  # noqa: E402
from freshet.gnn.torch_modules.loading import module_of  # noqa: E402
from freshet.kinds_graph import KindsGraph  # noqa: E402
from tests.support.graphs.gradients import assert_gradients  # noqa: E402
from tests.unit.gnn.pyg import (  # noqa: E402
    test_attributes,
    test_composed,
    test_convs,
    test_export,
    test_jumps,
    test_kinds_export,
    test_kinds_heads,
    test_kinds_statistics,
    test_learned_rows,
    test_norms,
    test_own_convs,
    test_own_relations,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
ours_of = differing.ours_of


def as_torch(model: Model | KindsModel, graphs: Graphs) -> Ours:
    """Return a model, ready to run on the graphs of its module: as the torch module in both precisions."""
    plan, one, other = ours_of(model, graphs), ModelPass(model), ModelPass(model).double()
    assert module_of(model).model().sha256() == model.sha256()

    def run(module: Any, graph: KindsGraph) -> list[Any]:
        with torch.no_grad():
            read = graphs.read(graph) if isinstance(model, KindsModel) else graph
            return [made.numpy() for made in module(read)]

    def exact(graph: KindsGraph, tolerance: float) -> list[Scaled]:
        judged = zip(run(other, graph), plan.exact(graph, tolerance), strict=True)
        return [Scaled(rows, of.scale) for rows, of in judged]

    return Ours(lambda graph: run(one, graph), exact)


Made = list[tuple[Model | KindsModel, KindsGraph]]


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Have exports compare modules with torch modules of their models; returns the models with a graph of each."""
    made = Made()

    def noted(model: Model | KindsModel, graphs: Graphs) -> Ours:
        graph = graphs.some()[0]
        made.append((model, graphs.read(graph) if isinstance(model, KindsModel) else graph))
        return as_torch(model, graphs)

    monkeypatch.setattr(differing, "ours_of", noted)
    return made


def cases() -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yield tests of exports with the names of their modules."""
    one_by_one: list[tuple[Any, Any]] = [
        (test_export.test_basic_models, test_export.BASIC),
        (test_jumps.test_the_model_gives_what_the_module_gives, [*test_jumps.COMBINED, *test_jumps.OTHERS]),
        (test_kinds_export.test_forms, test_kinds_export.FORMS),
        (test_kinds_export.test_rgcn, test_kinds_export.TYPED),
        (test_kinds_export.test_the_sage_of_pygs_example, ["mean", "mul"]),
        (test_learned_rows.test_rows_by_id_are_those_of_the_module, test_learned_rows.CALLS),
        (test_own_convs.test_a_conv_of_ones_own_is_read, test_own_convs.READ),
        (test_attributes.test_what_reads_attributes_is_taken_and_equals_the_module, test_attributes.TAKEN),
        (test_convs.test_it_gives_what_pyg_gives, test_convs.MODULES),
        (test_kinds_heads.test_logits, test_kinds_heads.FORMS),
        (test_kinds_statistics.test_rows_on_the_graph_of_the_export, test_kinds_statistics.FORMS),
        (test_norms.test_exact_norms_equal_pyg_on_any_graph, test_norms.EXACT),
        (test_norms.test_norms_of_the_whole_graph_equal_pyg_on_the_graph_they_were_frozen_at, test_norms.FROZEN),
        (test_own_relations.test_convs_of_ones_own_on_relations, test_own_relations.EXPORTED),
    ]
    for test, names in one_by_one:
        for name in names:
            yield (
                f"{test.__module__.rpartition('_')[2]} {test.__name__}: {name}",
                lambda folder, test=test, name=name: test(name, folder),
            )
    for kind, names in (("weighted", test_composed.WEIGHTED), ("unweighted", test_composed.UNWEIGHTED)):
        for name in names:
            test = test_composed.test_it_gives_what_pyg_gives
            yield f"composed: {name}", lambda folder, test=test, kind=kind, name=name: test(kind, name, folder)


CASES = dict(cases())


WITH_GRADIENTS = "test_rgcn", "test_rows_by_id", "test_rows_on_the_graph", "test_convs_of_ones_own_on_relations"
"""Tests whose models have layers beside those of test_without_kinds.py and test_with_kinds.py."""
OFTEN = 4
"""One in four is compared in all runs of the tests; `make drills` compares all."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if n % OFTEN else []) for n, name in enumerate(CASES)]
)
def test_torch_modules_of_exported_models_are_the_modules(name: str, exports: Made, tmp_path: Path) -> None:
    CASES[name](tmp_path)
    model, graph = exports[0]
    module = module_of(model).double()
    if any(of in name for of in WITH_GRADIENTS) and list(module.parameters()):
        assert_gradients(module, lambda: numpy_pass(model, module, graph, torch.float64), 1)


def test_models_of_all_kinds_are_compared() -> None:
    assert len(CASES) > 200
