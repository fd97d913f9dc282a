"""`freshet size --machines N`: its arithmetic against a plain calculation, its traffic, and what it refuses."""

from __future__ import annotations

import json

import pytest

from freshet.job import cli
from freshet.job.errors import UsageError
from freshet.job.flink.pipeline import OperatorGroups
from freshet.job.size.estimate import PROCESS_BYTES, ROWS_BYTES
from freshet.job.size.machines import Rates, cluster_of, division, with_replicas
from freshet.job.size.miniature import GraphSize, OperatorBytes, operators_of
from freshet.job.size.traffic import Link, MeasuredJob, traffic_of
from freshet.operators.dataflow import Place
from freshet.operators.inbox import INBOX_BYTES
from tests.unit.test_imports import ROOT

MODEL = ROOT / "tests" / "data" / "state" / "format-2" / "model"
OPERATORS = "partitioner", "storage0", "storage1"


def made_up(tasks: int) -> MeasuredJob:
    """A job of one layer, each number of which is another."""
    held = {
        Place(name, k): OperatorBytes(1000.0 * n + k, 100.0 * n + k)
        for n, name in enumerate(OPERATORS, 1)
        for k in range(tasks)
    }
    held = {place: one for place, one in held.items() if place.operator != "partitioner" or place.number == 0}
    pairs = [("partitioner", "storage0"), ("storage0", "storage1"), ("storage1", "sink")]
    event = {Link(*pair, beside): 10.0 * n + beside for n, pair in enumerate(pairs, 1) for beside in (False, True)}
    epoch = {link: 100.0 * size for link, size in event.items()}
    seconds = {name: 1e-6 * n for n, name in enumerate(OPERATORS, 1)}
    return MeasuredJob(held, event, epoch, seconds, {name: 1e-3 * one for name, one in seconds.items()}, 2.0)


@pytest.mark.parametrize(("groups", "tasks"), [(1, 1), (1, 3), (2, 1), (3, 2)])
def test_machines_by_a_plain_calculation(groups: int, tasks: int) -> None:
    found, rates = made_up(tasks), Rates(5000.0, 250, 1e6, 1e7)
    shape = GraphSize((10,), (20,), tasks)
    cluster = cluster_of(found, shape, 1, groups, tasks, rates)
    ordered = OperatorGroups(1, groups)
    machine = {}  # of every task of an operator
    for name in (*OPERATORS, "sink"):
        for k in range(1 if name == "partitioner" else tasks):
            machine[name, k] = ordered.group_of(name) * tasks + k
    sends, receives = [0.0] * (groups * tasks), [0.0] * (groups * tasks)
    between = 0.0
    for pair in (("partitioner", "storage0"), ("storage0", "storage1"), ("storage1", "sink")):
        senders = [k for name, k in machine if name == pair[0]]
        for beside in (False, True):
            link = Link(*pair, beside)
            each = (5000.0 * found.event[link] + 20.0 * found.epoch[link]) / len(senders)
            for k in senders:
                to = [k] if beside else [other for other in range(tasks) if other != k]
                if not to and machine[pair[0], k] != machine[pair[1], k]:
                    to = [k]  # a made-up byte for another task, where there is none
                away = [one for one in to if machine[pair[0], k] != machine[pair[1], one]]
                if not beside and not to:
                    continue
                for one in away:
                    sends[machine[pair[0], k]] += each / len(to)
                    receives[machine[pair[1], one]] += each / len(to)
                    between += each / len(to)
    if tasks > 1:  # with one task nothing is for another
        assert [one.sends for one in cluster.machines] == pytest.approx(sends)
        assert [one.receives for one in cluster.machines] == pytest.approx(receives)
        assert sum(cluster.links.values()) == pytest.approx(between)
    for number, one in enumerate(cluster.machines):
        here = [place for place, at in machine.items() if at == number]
        memory = [found.held[Place(*place)].memory if place[0] != "sink" else ROWS_BYTES for place in here]
        assert one.memory == int(sum(memory)) + INBOX_BYTES * len(here) + PROCESS_BYTES
        assert one.state == sum(found.held[Place(*place)].state for place in here if place[0] != "sink")
        shares = [
            (1 + OPERATORS.index(name)) / (1 if name == "partitioner" else tasks) for name, _ in here if name != "sink"
        ]
        assert one.cores == pytest.approx(sum(shares) * (1e-6 * 5000 + 1e-9 * 20))
    state = max(one.state for one in cluster.machines)
    busiest = max(1.0, 2.0 / tasks, 3.0 / tasks) * (1e-6 * 5000 + 1e-9 * 20)
    assert cluster.checkpoint == sum(one.state for one in cluster.machines) and cluster.disk == 3 * cluster.checkpoint
    assert cluster.recovery_s == pytest.approx(state / 1e6 + 2 * 10.0 * busiest)
    threads = {one.name: one for one in cluster.limits if one.name.startswith("one thread of ")}
    assert threads["one thread of partitioner"].met_at == pytest.approx(5000.0 / (1e-6 * 5000 + 1e-9 * 20))
    assert [one.share for one in cluster.limits] == sorted((one.share for one in cluster.limits), reverse=True)


def test_rows_of_replicas_cost_in_proportion() -> None:
    shape = GraphSize((6000,), (30_000,), 4)
    found = traffic_of(MODEL, shape, 4)
    sole = operators_of(MODEL, shape._replace(parts=1))
    for rows in (1.0, found.replicas, 1.5):
        scaled = with_replicas(found, sole, rows)
        for name, one in sole.items():
            whole = sum(held.memory for place, held in found.held.items() if place.operator == name)
            expected = one.memory + max(0.0, whole - one.memory) * (rows - 1) / (found.replicas - 1)
            got = sum(held.memory for place, held in scaled.held.items() if place.operator == name)
            assert got == pytest.approx(expected), name
    assert all(
        scaled.event[link] < size
        for link, size in found.event.items()
        if link.sender == "storage1" and not link.beside and link.receiver == "storage2"
    )


def test_one_task_sends_to_no_other_and_holds_what_the_estimate_says() -> None:
    shape = GraphSize((6000,), (30_000,))
    found = traffic_of(MODEL, shape, 1)
    assert found.replicas == 1.0
    assert all(size == 0 for link, size in found.event.items() if not link.beside)
    assert sum(size for link, size in found.event.items() if link.sender == "storage1") > 0
    held = operators_of(MODEL, shape)
    assert {place.operator: one.state for place, one in found.held.items()} == pytest.approx(
        {name: one.state for name, one in held.items()}, rel=0.01
    )


def test_json_has_the_machines_and_text_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["size", str(MODEL), "--vertices", "3000", "--edges", "12000", "--machines", "2", "--pipeline", "1"]
    with pytest.raises(SystemExit) as end:
        cli.main([*given, "--replicas", "1.5", "--json"])
    assert not end.value.code
    found = json.loads(capsys.readouterr().out)["machines"]
    assert (found["groups"], found["tasks"], found["parts"], found["replicas"]) == (1, 2, 2, 1.5)
    assert len(found["machines"]) == 2 and "partitioner-0" in found["machines"][0]["operators"]
    with pytest.raises(SystemExit):
        cli.main(given)
    text = capsys.readouterr().out
    assert "--parallelism 2 --pipeline 1 --parts 2" in text and "one thread of partitioner" in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--machines", "0"], "--machines 0: expected a whole number from 1 on"),
        (["--machines", "2000"], "--machines 2000: each layer would have 500 subtasks, expected at most 128"),
        (["--machines", "9", "--parts", "2"], "give --parts 3 or more, got 2"),
        (["--machines", "2", "--parts", "1025"], "1025"),
        (["--machines", "4", "--pipeline", "3"], "--pipeline 3: expected a divisor"),
        (["--machines", "4", "--pipeline", "0"], "--pipeline 0: expected a whole number from 1 on"),
        (["--machines", "2", "--parts", "2", "--replicas", "3"], "--replicas 3: a vertex has at most one row in each"),
        (["--machines", "2", "--replicas", "0.5"], "--replicas 0.5: expected a number from 1 on"),
        (["--machines", "2", "--events-per-s", "0"], "--events-per-s 0.0: expected a number greater than 0"),
        (["--machines", "2", "--disk", "5"], "--disk: got '5', expected a size"),
        (["--network", "1GB"], "--network 1GB: it counts with --machines alone"),
    ],
)
def test_numbers_that_no_job_has_are_refused_by_name(
    more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["size", str(MODEL), "--vertices", "3000", "--edges", "12000", *more])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_without_a_number_of_parts_each_task_of_a_layer_has_one() -> None:
    assert division(8, 2, 0) == (4, 2)
    assert division(6, 2, 0, 1) == (1, 6)
    with pytest.raises(UsageError, match="--parts 2 or more"):
        division(8, 2, 1)
