"""scripts/bench/matrix.py and parts.py: what is run, what is run again, and what the figures then say."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.bench import matrix, parts
from scripts.bench.arxiv_stream import first_events, generate_once, graph_name
from scripts.bench.rounds import FAILURES_MAX, Measurement, MeasurementError, Results, duration, take_rounds
from scripts.plots.parts import plot

A, B = {"name": "a"}, {"name": "b"}
ONE = {"n": 1.0}


def options(**given: object) -> argparse.Namespace:
    plain = {"parts": [1, 2, 4, 16], "processes": [1, 2, 4], "events": 5000, "epochs_max": 100, "cores": [8, 64]}
    return argparse.Namespace(**(plain | {"epochs": ["1", "10", "1000", "adaptive"]} | given))


def figures(mixture: parts.Mixture, cpu_us: float = 10.0) -> dict[str, float]:
    """Those of a process that keeps two cores busy with the Partitioner's thread half idle."""
    rate = 2e6 * mixture.processes / cpu_us
    times = {"cpu_us_per_event": cpu_us, "partitioner_us_per_event": 1.0, "applied_ms_p50": 1.0, "applied_ms_p99": 2.0}
    return times | {"events_per_s": rate, "bytes_per_event": 900.0, "events_per_epoch": 10.0}


def measurements(log: list[str], *names: str, fails: str = "") -> list[Measurement]:
    def take(name: str) -> Callable[[], dict[str, float]]:
        def taken() -> dict[str, float]:
            log.append(name)
            if name in fails:
                raise MeasurementError(f"{name} broke")
            return {"n": float(len(log))}

        return taken

    return [Measurement({"name": name}, f"run {name}", take(name)) for name in names]


def test_every_number_of_parts_meets_every_number_of_processes() -> None:
    shapes = matrix.default_shapes([1, 2, 4, 16], [1, 2, 4])
    assert shapes == [f"{p}:{n}:{n}" for n in (1, 2, 4) for p in (1, 2, 4, 16)]  # layers first


def test_a_subtask_without_a_part_is_not_run() -> None:
    assert matrix.default_shapes([1, 2, 4], [8]) == ["2:8:4", "4:8:4"]


def test_forecasts_have_two_numbers_of_processes_for_each_pipeline() -> None:
    shapes = [tuple(map(int, shape.split(":"))) for shape in matrix.forecast_shapes([1, 2, 4])]
    assert all(p * k == n for p, n, k in shapes)
    numbers = {k: [n for _, n, k_ in shapes if k_ == k] for k in (1, 2, 4)}
    assert numbers == {1: [1, 2, 4], 2: [2, 4, 8], 4: [4, 8]}


def test_small_epochs_are_few_and_nothing_is_run_twice() -> None:
    mixtures = matrix.all_mixtures("arxiv", options())
    assert len(mixtures) == len(set(mixtures)) == 4 * 12 + 2 * 5
    events = {m.epoch: m.events for m in mixtures}
    assert events == {"1": 100, "10": 1000, "1000": 5000, "adaptive": 5000}
    order = [m.epoch for m in mixtures]
    assert [epoch for epoch, before in zip(order, ["", *order], strict=False) if epoch != before] == list(events)


def test_options_of_a_run() -> None:
    given = parts.Mixture("arxiv", 4, 2, 2, "100", 9).options
    assert given == "--parts 4 --parallelism 2 --pipeline 2 --epoch-events 100 --epoch-ms 0".split()
    assert parts.Mixture("arxiv", 1, 1, 1, "adaptive", 9).options[-2:] == ["--latency-target", "50ms"]


def test_rounds_alternate_and_go_on_where_a_kill_came(tmp_path: Path) -> None:
    log: list[str] = []
    file = tmp_path / "deep" / "results.jsonl"
    take_rounds(measurements(log, "a", "b"), 1, Results(file))
    with file.open("ab") as cut_off:
        cut_off.write(b'{"what": {"name": "a"}, "fig')
    take_rounds(measurements(log, "a"), 2, Results(file))
    assert log == ["a", "b", "a"]
    take_rounds(measurements(log, "a", "b"), 3, Results(file))
    assert log == ["a", "b", "a", "b", "a", "b"]
    assert [len(Results(file).of(what)) for what in (A, B)] == [3, 3]
    assert take_rounds(measurements(log, "a", "b"), 3, Results(file)) == 0 and len(log) == 6


def test_figures_of_another_machine_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    Results(file).add(A, ONE, 1.0)
    there = orjson.loads(file.read_bytes())
    file.write_bytes(orjson.dumps(there | {"machine": "another"}) + b"\n")
    assert Results(file).of(A) == []
    file.write_bytes(orjson.dumps(there))
    assert Results(file).of(A) == [ONE]


def test_what_fails_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    log: list[str] = []
    results = Results()
    assert take_rounds(measurements(log, "a", "b", fails="a"), 2, results) == 1
    assert log == ["a", "b", "b"] and not results.of(A) and len(results.of(B)) == 2
    assert "FAILED and left out: run a\na broke" in capsys.readouterr().err


def test_when_everything_fails_it_ends() -> None:
    log: list[str] = []
    with pytest.raises(SystemExit, match="the same command goes on"):
        take_rounds(measurements(log, *"abcdefgh", fails="abcdefgh"), 2, Results())
    assert len(log) == FAILURES_MAX + 1


def test_what_is_left_is_told_by_what_was_taken() -> None:
    results = Results()
    assert results.seconds_left([A]) is None
    results.add(A, ONE, 10.0)
    results.add(A, ONE, 20.0)
    results.add(B, ONE, 90.0)
    assert results.seconds_left([A, {"name": "new"}]) == 15 + 40
    assert [duration(seconds) for seconds in (1, 119, 7260)] == ["1 min", "2 min", "2 h 1 min"]


def test_processor_time_leaves_start_and_end_out() -> None:
    assert parts.us_between([(5.0, 1000), (6.0, 2000), (7.0, 3000), (9.5, 3500)]) == 1000.0
    with pytest.raises(MeasurementError, match="give more --events"):
        parts.us_between([(5.0, 1000), (6.0, 2000)])


def measured(*rows: tuple[int, float, float]) -> dict[int, dict[str, float]]:
    """By number of processes: cores busy, and microseconds an event."""
    return {
        n: {"cpu_us_per_event": us, "events_per_s": 1e6 * busy / us, "partitioner_us_per_event": 1.0}
        for n, busy, us in rows
    }


def test_forecast_by_hand() -> None:
    flat = measured((1, 2.0, 10.0), (2, 4.0, 10.0))
    assert parts.forecast(flat, 8) == (8, 4, pytest.approx(800_000))  # 4 processes keep 8 cores busy
    grows = measured((1, 2.0, 10.0), (2, 4.0, 20.0))
    assert parts.forecast(grows, 8) == (8, 1, pytest.approx(200_000))
    assert parts.forecast(measured((2, 2.0, 10.0), (4, 4.0, 15.0)), 16)[1:] == (16, pytest.approx(16e6 / 45))


def test_no_forecast_takes_more_events_than_the_partitioner() -> None:
    assert parts.forecast(measured((1, 1.0, 10.0), (2, 2.0, 10.0)), 64) == (64, 10, pytest.approx(1e6))
    crowded = measured((1, 2.0, 10.0), (2, 4.0, 40.0))  # its thread waits for others
    crowded[2]["partitioner_us_per_event"] = 20.0
    assert parts.forecast(crowded, 8).events_per_s == pytest.approx(200_000)  # what one process has shown


def test_noise_does_not_make_processes_take_less() -> None:
    noisy = parts.forecast(measured((1, 2.0, 10.0), (2, 4.0, 9.0), (4, 8.0, 8.0)), 16)
    assert noisy == (16, 5, pytest.approx(1e6))  # five processes at 10 us an event are as fast as the Partitioner
    fewer_cores = parts.forecast(measured((4, 2.0, 10.0), (8, 4.0, 10.0)), 2)
    assert fewer_cores == (2, 4, pytest.approx(200_000))


def test_the_matrix_has_a_forecast_for_each_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    found = {m: figures(m, 10.0 + m.processes) for m in matrix.all_mixtures("arxiv", options())}
    parts.report_forecasts(found, [8, 64])
    rows = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = {(row["epoch"], row["pipeline"], row["cores"]): row["events_per_s"] for row in rows}
    assert set(told) == {(epoch, k, cores) for epoch in ("1000", "adaptive") for k in (1, 2, 4) for cores in (8, 64)}
    assert told["1000", 1, 8] == round(8e6 / 14) and told["1000", 4, 64] == 1e6  # the Partitioner


def test_tables_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {"folder": tmp_path, "plot": tmp_path / "new" / "picture.png"}
    given = options(runtime="flink", partitioner="hybrid", snapshot_placement="whole", **shown)
    graph = tmp_path / "friends" / "edges.parquet"
    mixtures = matrix.all_mixtures("friends", given)[:5]
    runs, results = parts.runs_of(mixtures, graph, given), Results()
    for mixture, one in list(zip(mixtures, runs, strict=True))[1:]:  # the first is still to come
        for cpu_us in (9.0, 10.0, 40.0):
            results.add(one.what, figures(mixture, cpu_us), 1.0)
    parts.finish(mixtures, runs, results, given)
    out, err = capsys.readouterr()
    assert [orjson.loads(line)["cpu_us_per_event"] for line in out.splitlines()] == [10.0] * 4
    assert "friends: parts and processes, medians of 3" in err and "picture.png" in err
    assert given.plot.read_bytes().startswith(b"\x89PNG")
    parts.finish(mixtures, runs, Results(), given)
    assert not capsys.readouterr().out


def test_picture_of_several_graphs(tmp_path: Path) -> None:
    found = {m: figures(m) for name in ("arxiv", "friends") for m in matrix.all_mixtures(name, options())}
    plot(found, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_engine_beside_its_peers(capsys: pytest.CaptureFixture[str]) -> None:
    results = Results()
    matrix.report_engine(results)
    rates = {"freshet": 300.0, "RP": 100.0, "RC": 50.0}
    taken = {f"{system}_{size}": rate for system, rate in rates.items() for size in matrix.SIZES}
    results.add(matrix.ENGINE, taken, 1.0)
    matrix.report_engine(results)
    out, err = capsys.readouterr()
    assert orjson.loads(out)["RP_10"] == 100.0 and err.count("3.0 x") == err.count("6.0 x") == len(matrix.SIZES)


def test_which_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "deezer_hu" / "edges.parquet"
    monkeypatch.setenv("FRESHET_DATA", str(tmp_path))
    assert matrix.graphs_of(None) == [None]
    file.parent.mkdir()
    file.touch()
    assert matrix.graphs_of(None) == [None, file] and matrix.graphs_of([str(file), "arxiv"]) == [file, None]
    assert [graph_name(graph) for graph in (None, file, tmp_path / "roads.parquet")] == ["arxiv", "deezer_hu", "roads"]
    with pytest.raises(SystemExit, match=r"no file nothing.parquet; expected 'arxiv' or"):
        matrix.graphs_of(["nothing.parquet"])


def test_the_first_events_of_a_stream(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pq.write_table(pa.table({"src": rng.permutation(3000), "dst": rng.permutation(3000)}), tmp_path / "ring.parquet")
    folder = generate_once(tmp_path / "stream", 70_000, graph=tmp_path / "ring.parquet")
    whole = pq.read_table(folder / "events.parquet")
    assert first_events(folder, 70_000) == folder / "events.parquet"
    for count in (10, 65_540):  # past a group of rows
        assert pq.read_table(first_events(folder, count)).equals(whole.slice(0, count))


def test_sizes_of_epochs_are_numbers_or_adaptive() -> None:
    assert [parts.size_of(epoch) for epoch in ("10", "adaptive")] == ["10", "adaptive"]
    for wrong in ("0", "1k", "-1", "Adaptive"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a number of events, or 'adaptive'"):
            parts.size_of(wrong)


def test_the_engine_is_measured_by_a_script_that_is_there() -> None:
    assert matrix.LAYERS.is_file()
