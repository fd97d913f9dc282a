"""What Freshet is measured beside: exact where it says so, on a stream with deletions."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from scripts.bench.arxiv_stream import WIDTH  # noqa: E402
from scripts.bench.peer_systems import Net, Workload  # noqa: E402
from scripts.bench.peers import ENTRIES, TOLERANCE, Stream, errors  # noqa: E402

VERTICES, EDGES, EVENTS = 300, 9_000, 900


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workload, Net, Model]:
    torch.manual_seed(3)
    net = Net().eval()
    model = export_model(net, tmp_path_factory.mktemp("model"), features=WIDTH)
    assert isinstance(model, Model)
    return Workload(VERTICES, EDGES, EVENTS), net, model


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda one: one.name)
def test_it_is_exact_if_it_says_so(entry: Any, given: tuple[Workload, Net, Model]) -> None:
    workload, net, model = given
    with torch.no_grad():
        try:
            stream = Stream(entry.make(workload, net, model), EVENTS)
        except ImportError as error:
            pytest.skip(str(error))
        for size in (300, 1, 99, 400, 7):
            stream.epoch(size)
        found = errors(stream.system, workload, net, stream.at)
    assert (found["max_error"] <= TOLERANCE) == entry.is_exact
    assert (found["median_error"] <= TOLERANCE) == entry.is_exact
    with pytest.raises(EOFError):
        stream.epoch(EVENTS)
