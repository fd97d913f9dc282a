"""The rehearsal calls every kernel that Python calls: what it leaves out is compiled amid a job."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from freshet.gnn.model import save_model
from freshet.kernels import compiled
from freshet.kernels.kernel_calls import NOTE_VARIABLE, Call, decode, encode, in_turn
from freshet.partitioner.config import PartitionerConfig
from tests.support.graphs.kinds import hetero, kinds_model, relation
from tests.support.graphs.messages import relation_layer
from tests.support.graphs.models import conv, make_model

# What kernels call in jobs, and tests from Python.
_BY_TESTS = {
    "freshet.state.adjacency": {"append", "find", "remove"},
    "freshet.state.chunks": {"give_back", "hand_out", "order_of"},
    "freshet.state.salt": {"hash_text", "mix"},
}
_BY_CHECK = {"freshet.gnn.oracles.edges": {"_gather"}}  # `freshet check` waits for it, no job does
_BY_EXPORT = {"freshet.partitioner.live_graph": {"_list_places"}}
_BY_TRAINING = {  # a job does not wait for it
    "freshet.operators.sampling.kernels": {
        "count_sampled",
        "count_targets",
        "mix_in",
        "number_sources",
        "sample_in_edges",
        "sort_by_target",
    }
}
_BY_WHAT_IF = {  # a server compiles them when it begins
    "freshet.partitioner.degrees": {"list_degrees"},
    "freshet.partitioner.inspection": {"_find_ints", "_find_names", "_list_edges"},
}
_BY_DEVICE = {"freshet.gnn.torch_modules.chunked.in_edges": {"_count_targets", "_deal", "_first_seen", "_number"}}
_INNER_ALLOCATING = {
    "freshet.operators.sink.string_ids": {"_allocate", "_find", "_home", "_order", "_release"},
    "freshet.state.served.list_kernels": {"compare_two"},
}


def rehearsed(*options: str) -> list[Call]:
    return noted_by("freshet.operators.rehearsal", *options)


def noted_by(*module: str) -> list[Call]:
    command = [sys.executable, "-m", *module]
    environ = os.environ | {"NUMBA_DISABLE_JIT": "1", NOTE_VARIABLE: "1"}
    done = subprocess.run(command, cwd=compiled._PROJECT, env=environ, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return [decode(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    return rehearsed()


def entered() -> set[tuple[str, str]]:
    """The kernels that can be called from Python."""
    found = set()
    for file in compiled.kernel_modules():
        module = ".".join(("freshet", *file.relative_to(compiled._PROJECT).with_suffix("").parts))
        for name, one in vars(import_module(module)).items():
            if isinstance(one, Dispatcher) and one.py_func.__module__ == module:
                if not one.targetoptions["no_cpython_wrapper"]:
                    found.add((module, name))
    assert len(found) > 50
    return found


def test_it_calls_every_kernel_that_python_calls(calls: list[Call]) -> None:
    known = _BY_TESTS | _BY_CHECK | _BY_EXPORT | _BY_TRAINING | _BY_WHAT_IF | _BY_DEVICE | _INNER_ALLOCATING
    others = {(module, name) for module in known for name in known[module]}
    assert entered() - {(call.module, call.name) for call in calls} == others


def test_weights_and_parts_need_no_large_kernel_of_their_own(calls: list[Call]) -> None:
    names = [call.name for call in calls]
    for name in ("merge_epoch", "close_epoch", "apply_events", "resolve_ints", "resolve_names", "finish"):
        assert names.count(name) == 1, name


def test_stores_between_two_sets_of_rows_need_no_kernel_of_their_own(calls: list[Call]) -> None:
    between = noted_by("tests.support.stages.between")
    assert {"merge_epoch", "find_turns", "leave", "find_turned", "find_edges"} <= {call.name for call in between}
    assert set(between) <= set(calls)


def test_kinds_of_vertices_need_no_kernel_of_their_own(calls: list[Call]) -> None:
    of_kinds = noted_by("tests.support.stages.kind_notes")
    assert {"merge_epoch", "apply_events", "_place", "put", "exchange"} <= {call.name for call in of_kinds}
    assert set(of_kinds) <= set(calls)


def test_each_is_told_once_and_a_model_s_jobs_of_one_kind_are_some_of_all(calls: list[Call], tmp_path: Path) -> None:
    assert len(set(calls)) == len(calls)
    save_model(make_model(0, [conv("graph_conv", 3, 3), conv("sage_conv", 3, 3)]), tmp_path)
    options = ("--model", str(tmp_path), "--several-parts")
    every, some = rehearsed(*options), rehearsed(*options, "--ids", "int", "--no-topic")
    assert set(some) < set(every)
    others = {"freshet.operators.sink.string_ids", "freshet.operators.sink.kafka_records"}
    assert others <= {call.module for call in set(every) - set(some)}
    assert not others & {call.module for call in some}


@pytest.mark.parametrize("kind", ["sage_conv", "gat_conv"])
def test_wide_rows_and_huge_logits_are_rehearsed_as_others_are(tmp_path: Path, kind: str) -> None:
    """Sixteen channels have code of their own; e^x of the throwaway rows, some of 1e20, is past float64."""
    options = {"aggr": "max"} if kind == "sage_conv" else {"heads": 2}
    save_model(make_model(0, [conv(kind, 8, 32, **options), conv(kind, 32, 32, **options)]), tmp_path)
    assert rehearsed("--model", str(tmp_path), "--several-parts", "--ids", "int", "--no-topic")


def test_a_model_that_reads_degrees_of_sources_is_rehearsed(tmp_path: Path) -> None:
    options: dict[str, Any] = {"degrees": "both", "add_self_loops": False}
    save_model(make_model(0, [conv("gcn_conv", 3, 4, **options), conv("gcn_conv", 4, 3, **options)]), tmp_path)
    assert rehearsed("--model", str(tmp_path), "--several-parts", "--ids", "int", "--no-topic")


def test_no_vertex_is_split_where_an_aggregate_does_not_merge(tmp_path: Path) -> None:
    """Its class raises where parts are to be merged."""
    from freshet.operators.rehearsal import jobs_of

    ends, item = [relation("user", "buys", "item")], {"user": 4, "item": 3}
    for name, strategy in (("Median", "hash"), ("Largest", PartitionerConfig().strategy)):
        model = kinds_model([hetero({0: relation_layer(name, 4, 3, 2, 0)})], ["item"], item, ends)
        save_model(model, tmp_path / name)
        (settings,) = jobs_of(tmp_path / name, [(2, 1)], ["int"], tmp_path)
        assert (settings.parts, settings.partitioning.strategy) == (3, strategy)


def test_calls_come_back_from_their_lines_and_the_largest_stand_at_the_ends(calls: list[Call]) -> None:
    assert [decode(encode(call)) for call in calls] == calls
    ordered = in_turn(calls)
    assert len(ordered) == len(calls) and set(ordered) == set(calls)
    assert (ordered[0].name, ordered[-1].name) == ("merge_epoch", "close_epoch")
