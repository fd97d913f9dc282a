"""A model whose bits decide what a deletion finds does not go on on any processor that comes along."""

from typing import Any

import pytest

from freshet.gnn.plan import Plan, compile_plan
from freshet.job.errors import UsageError
from freshet.job.run.processor import of_new_job, of_resumed_job
from freshet.kernels.processor import running
from tests.support.graphs.models import conv, linear, make_model

OTHER = {"blas": "OpenBLAS 0.0.1 Haswell"}
PNA: dict[str, Any] = {"scalers": ["identity"]}
NETWORK = {"pre": [{"type": "relu"}, linear(3, 3)]}
NEEDING = {
    "edge_conv of max": conv("edge_conv", 3, 3),
    "edge_conv of min": conv("edge_conv", 3, 3, aggr="min"),
    "pna_conv of a network": conv("pna_conv", 3, 4, aggregators=["sum", "max"], **PNA, **NETWORK),
}
FREE = {
    "max of values": conv("sage_conv", 3, 3, aggr="max"),
    "sum of a network": conv("edge_conv", 3, 3, aggr="sum"),
    "pna_conv of a network without extrema": conv("pna_conv", 3, 4, aggregators=["sum", "var"], **PNA, **NETWORK),
    "pna_conv of values": conv("pna_conv", 3, 4, aggregators=["mean", "min"], **PNA),
    "attention": conv("gat_conv", 3, 3),
}


def plan_of(spec: dict[str, Any]) -> Plan:
    return compile_plan(make_model(0, [conv("graph_conv", 3, 3), spec]))


@pytest.mark.parametrize("name", NEEDING)
def test_extrema_of_a_network_are_refused_on_any_processor(name: str) -> None:
    plan = plan_of(NEEDING[name])
    for begun in (lambda: of_new_job("any", plan), lambda: of_resumed_job("any", OTHER, plan)):
        with pytest.raises(UsageError, match=r"--processor any: .* maximum or minimum of a network's messages"):
            begun()
    with pytest.raises(UsageError, match="the job computes with") as refused:
        of_resumed_job(None, OTHER, plan)
    assert "--processor any" not in str(refused.value), "it would be refused"
    assert of_new_job(None, plan) == running()


@pytest.mark.parametrize("name", FREE)
def test_others_may_go_on_anywhere(name: str) -> None:
    plan = plan_of(FREE[name])
    assert of_new_job("any", plan) == of_resumed_job("any", OTHER, plan) == {}
    with pytest.raises(UsageError, match="--processor any"):
        of_resumed_job(None, OTHER, plan)
