"""A swap refuses these before it changes anything."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freshet.gnn.plan import compile_plan
from freshet.job.errors import UsageError
from freshet.job.swap.ahead import refuse_model
from tests.support.graphs.attributed import EDGE_WIDTH, gine
from tests.support.graphs.models import make_model

CONTRACT: Any = SimpleNamespace(returned=())


def plan(*categories: int) -> Any:
    return compile_plan(make_model(3, [gine(4, 3)]).model_copy(update={"edge_categories": list(categories)}))


@pytest.mark.parametrize("before", [(), (0,) * (EDGE_WIDTH - 1) + (6,)], ids=["any", "more"])
def test_a_model_of_fewer_categories_is_refused(before: tuple[int, ...]) -> None:
    new = plan(*[0] * (EDGE_WIDTH - 1), 5)
    with pytest.raises(UsageError, match=rf"attribute {EDGE_WIDTH - 1} of its edges numbers 5 categories, and the job"):
        refuse_model(plan(*before), new, CONTRACT, Path("M"))
    refuse_model(new, plan(*before), CONTRACT, Path("M"))
    refuse_model(new, new, CONTRACT, Path("M"))
