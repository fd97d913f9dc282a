"""What a server answers to "what if", held against the rows of the job after these events have happened."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from freshet.gnn.any_plan import names_of_returned
from freshet.gnn.model import save_model
from freshet.job.errors import JobFailed
from freshet.job.serving.bounds.forms import FormError
from freshet.job.serving.protocol.errors import NotReadyError, NotYetError, TooFarError
from freshet.job.serving.protocol.wanted import IDS_MAX
from freshet.job.serving.tables.requests import WhatIfRequest
from freshet.job.what_if.engine import WhatIfEngine
from freshet.job.what_if.followed_graph import FollowedGraph
from freshet.operators.factory import load_plan
from freshet.operators.what_if.core import WhatIf
from tests.support.graphs.live_truth import as_event, records_of
from tests.support.serving.tried import Event, Rows, item_of
from tests.unit.job.live.test_live_graph import CASES, Case, plain
from tests.unit.job.results.test_attributes import run

EVENTS, MOST, TOLERANCE = 400, 10**6, 2e-6


def written(folder: Path, case: Case, parts: int = 2) -> tuple[Path, list[Event]]:
    """A job of which each event is an epoch, and the events."""
    save_model(case.model, folder / "model")
    events = [
        as_event(case.truth, one) for one in records_of(random.Random(5), case.truth, EVENTS, case.ids, case.keys)
    ]
    (folder / "events.jsonl").write_bytes(b"\n".join(map(orjson.dumps, events)))
    return run(folder, "O", parts=parts, epoch_events=1, **case.options), events


@pytest.mark.parametrize("make", CASES, ids=lambda one: one.__name__)
def test_rows_are_those_of_the_job_once_it_has_happened(make: Callable[[], Case], tmp_path: Path) -> None:
    case = make()
    out, events = written(tmp_path, case)
    (kind,) = names_of_returned(load_plan(str(tmp_path / "model"))) or ("",)
    rows, newest, compared = Rows(out, case.ids), [0], 0
    engine = WhatIfEngine(FollowedGraph(out, None), lambda: newest[0])
    for epoch, event in enumerate(events):
        if (item := item_of(event, kind)) is None:
            continue
        newest[0] = epoch
        found = engine.tried([item], kind, 0, 5.0, MOST)
        assert found.epoch == epoch
        wanted = {one: rows.at(one, epoch + 1) for one in [item["id"], *item.get("also", ())]}
        if "id" in item and wanted[item["id"]] is None:  # what deletes nothing brings no vertex to life
            continue
        there = [one for one in wanted if wanted[one] is not None]
        assert (found.ids, found.unknown) == (there, [one for one in wanted if wanted[one] is None])
        made = np.array([wanted[one] for one in there])
        np.testing.assert_allclose(
            found.rows, made, TOLERANCE, TOLERANCE * np.abs(made).max(), err_msg=f"{epoch}: {item}"
        )
        compared += len(there)
    engine.close()
    assert compared > 30


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("plain"), plain())[0]


@pytest.fixture(scope="module")
def engine(ended: Path) -> Iterator[WhatIfEngine]:
    found = WhatIfEngine(FollowedGraph(ended, None), lambda: EVENTS)
    found.start()
    yield found
    found.close()


def ask(engine: WhatIfEngine, *items: dict[str, Any], most: int = MOST) -> Any:
    return engine.tried(items, "", 0, 5.0, most)


def test_vertices_are_tried_by_themselves_and_nothing_of_them_stays(engine: WhatIfEngine) -> None:
    one, other = {"x": [1.0] * 6, "in_edges": [[5], [12, 0.5]]}, {"id": 5, "del_in_edges": [[12]], "also": [12, 999]}
    both = ask(engine, one, other)
    assert (both.ids, both.of.tolist(), both.unknown) == ([None, 5, 12], [0, 1, 1], [999])
    for k, (item, rows) in enumerate(((one, both.rows[:1]), (other, both.rows[1:]))):
        np.testing.assert_array_equal(ask(engine, item).rows, rows, err_msg=str(k))
    before = ask(engine, {"id": 5})
    ask(engine, {"id": 5, "x": [3.0] * 6, "out_edges": [[12, 2.0]], "in_edges": [[-1234]]})
    np.testing.assert_array_equal(ask(engine, {"id": 5}).rows, before.rows)
    assert ask(engine, {"id": 12, "also": [-1234]}).unknown == [-1234]


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({"x": [1.0]}, "x: expected 6 numbers, got 1"),
        ({"x": [1.0, math.inf]}, "x: expected finite numbers"),
        ({"id": 5, "in_edges": [[7, math.inf]]}, r"in_edges\[0\]: weight, attr: expected finite numbers"),
        ({"id": "five"}, "id: expected an integer, got 'five'"),
        ({"id": 5, "in_edges": [7]}, r"in_edges\[0\]: expected \[ID, weight, type, attr\]"),
        ({"id": 5, "in_edges": [[7], [8, "much"]]}, r"in_edges\[1\]: weight: "),
        ({"id": 5, "out_edges": [{"id": 7, "wieght": 2}]}, r"out_edges\[0\]: expected "),
        ({"id": 5, "out_edges": [{"weight": 2}]}, r"out_edges\[0\]: expected "),
        ({"id": 5, "out_edges": [[7, 1.0, None, [1.0], 3]]}, r"out_edges\[0\]: expected "),
        ({"id": 5, "del_in_edges": [[2**70]]}, r"del_in_edges\[0\]: src: expected an integer within int64"),
        ({"id": 5, "also": [1.5]}, "also: expected an integer, got 1.5"),
    ],
)
def test_what_the_job_would_reject_is_refused_by_its_field(
    engine: WhatIfEngine, item: dict[str, Any], why: str
) -> None:
    with pytest.raises(FormError, match=why):
        ask(engine, item)
    if "also" not in item:
        with pytest.raises(FormError, match=rf"vertices\[1\]\.{why}"):
            ask(engine, {"id": 12}, item)


def test_what_reaches_too_far_says_how_far(engine: WhatIfEngine) -> None:
    with pytest.raises(TooFarError, match=r"max_touched: the events reach \d+ vertices in inner layers, expected .* 1"):
        ask(engine, {"id": 5, "x": [1.0] * 6, "out_edges": [[12], [19], [26]]}, most=1)


def test_an_epoch_that_does_not_come_is_waited_for(engine: WhatIfEngine) -> None:
    with pytest.raises(NotYetError, match=rf"expected epoch {EVENTS + 1:,}, its graph is at {EVENTS:,}"):
        engine.tried([{"id": 5}], "", EVENTS + 1, 0.1, MOST)


def test_a_graph_that_others_have_is_waited_for_as_long_as_asked(ended: Path) -> None:
    own = WhatIfEngine(FollowedGraph(ended, None), lambda: EVENTS)

    def waits() -> None:
        with pytest.raises(NotYetError, match="expected epoch"):
            own.tried([{"id": 5}], "", EVENTS + 1, 2.0, MOST)

    other = threading.Thread(target=waits)
    other.start()
    deadline = time.monotonic() + 60
    while not own.turns.is_had and time.monotonic() < deadline:
        time.sleep(0.001)
    with pytest.raises(NotYetError, match=r"after 0\.05 s the graph is still read, or others ask"):
        own.tried([{"id": 5}], "", 0, 0.05, MOST)
    other.join()
    own.close()


def test_others_are_answered_between_two_vertices_of_a_request_which_stays_at_its_epoch(
    ended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, answered, found = [EVENTS - 9], list[str](), dict[str, Any]()
    own = WhatIfEngine(FollowedGraph(ended, None), lambda: newest[0])
    try_ask = WhatIf.ask

    def start(name: str, *items: dict[str, Any]) -> threading.Thread:
        def run() -> None:
            found[name] = own.tried(items, "", 0, 60.0, MOST)

        thread = threading.Thread(target=run, name=name)
        thread.start()
        return thread

    def waiting(count: int) -> None:
        deadline = time.monotonic() + 60
        while own.turns.waiting < count and time.monotonic() < deadline:
            time.sleep(0.001)

    def asked(*args: Any) -> Any:
        answered.append(threading.current_thread().name)
        if len(answered) == 1:
            others.append(start("same epoch", {"id": 12}))
            waiting(1)
            newest[0] = EVENTS
            others.append(start("later epoch", {"id": 12}))
            waiting(2)
        return try_ask(*args)

    others = list[threading.Thread]()
    monkeypatch.setattr(WhatIf, "ask", asked)
    start("many", *({"id": one} for one in (5, 12, 19))).join()
    for one in others:
        one.join()
    assert answered == ["many", "same epoch", "many", "many", "later epoch"]
    assert [found[name].epoch for name in ("many", "same epoch", "later epoch")] == [EVENTS - 9, EVENTS - 9, EVENTS]
    np.testing.assert_array_equal(found["many"].rows[found["many"].of == 1], found["same epoch"].rows)
    own.close()


def test_input_that_is_gone_is_said_to_the_first_who_asks_and_to_all_later(tmp_path: Path) -> None:
    out, _ = written(tmp_path, plain())
    engine = WhatIfEngine(FollowedGraph(out, None), lambda: EVENTS)
    (tmp_path / "events.jsonl").write_bytes(b"")
    for _ in range(2):
        with pytest.raises(NotReadyError, match=r"what if: .*the file has changed"):
            ask(engine, {"id": 5})
    engine.close()


def test_rows_of_a_request_are_bounded_together() -> None:
    half = {"also": [5] * (IDS_MAX // 2)}
    assert WhatIfRequest.model_validate({"also": [5] * (IDS_MAX - 1)}).rows == IDS_MAX
    for given in ({"also": [5] * IDS_MAX}, {"vertices": [half, half]}):
        with pytest.raises(ValueError, match=f"also: expected at most {IDS_MAX:,} rows of a request"):
            WhatIfRequest.model_validate(given)


def test_input_that_is_gone_is_said_and_not_answered_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = written(tmp_path, plain())
    engine = WhatIfEngine(FollowedGraph(out, None), lambda: EVENTS)
    (tmp_path / "events.jsonl").write_bytes(b"")
    engine.start()
    said, deadline = "", time.monotonic() + 60
    while "it is not answered from now on" not in said and time.monotonic() < deadline:
        said += capsys.readouterr().err
        time.sleep(0.01)
    with pytest.raises(NotReadyError, match=r"what if: .*the file has changed"):
        ask(engine, {"id": 5})
    engine.close()


def test_after_brokers_were_away_the_graph_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = written(tmp_path, plain())
    monkeypatch.setattr("freshet.job.what_if.engine._AGAIN_S", 0.01)
    away, bring_on = [True, True], FollowedGraph.bring_on

    def failing(self: FollowedGraph, epoch: int, report: Callable[[str], None]) -> bool:
        if away and away.pop():
            msg = "broker:9092: no brokers available"
            raise JobFailed(msg)
        return bring_on(self, epoch, report)

    monkeypatch.setattr(FollowedGraph, "bring_on", failing)
    engine = WhatIfEngine(FollowedGraph(out, None), lambda: EVENTS, lambda: FollowedGraph(out, None))
    with pytest.raises(NotReadyError, match="what if: broker:9092: no brokers available"):
        ask(engine, {"id": 5})
    engine.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            assert ask(engine, {"id": 5}).epoch == EVENTS
            break
        except NotReadyError:
            time.sleep(0.01)
    assert not away
    assert "it is not answered until the graph can be read again" in capsys.readouterr().err
    engine.close()
