"""What an edge carries and how wide features are is known to few files, and a further value of edges to one."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.unit.test_imports import ROOT, package_files

# Files that may say a word, by the word: where it is what they are about.
AT_HOME = {
    "weights?": (
        "gnn/",
        "parser",
        "aggregates",
        "edge_messages",
        "edge_table",
        "both_ends",
        "snapshot",
        "operators/checks/",
        "serving/bounds/asked_edges",
    ),
    "in_width": ("kind_layers/", "describing/", "operators/checks/"),  # of rows between layers
    "forbid_typed_loops": ("partitioner/", "graph/rules"),
}
# At most so many others say it. Lower a number when it falls.
OTHERS = {"weights?": 22, "in_width": 15, "forbid_typed_loops": 3}
ADVICE = {
    "weights?": "pass an edge's values on as EdgeValues (freshet/schema.py), and look inside in messages alone",
    "in_width": "pass the Features of a plan on (freshet/schema.py), and vertices' rows as FeatureRows",
    "forbid_typed_loops": "pass the rules of a graph on as GraphRules (partitioner/config.py)",
}


def others_that_say(word: str) -> list[str]:
    names = {file: file.relative_to(ROOT).as_posix() for file in package_files()}
    return [
        name
        for file, name in names.items()
        if not any(part in name for part in AT_HOME[word]) and re.search(rf"\b{word}\b", file.read_text())
    ]


@pytest.mark.parametrize("word", OTHERS)
def test_few_files_know_what_edges_carry_how_wide_features_are_and_which_rules_hold(word: str) -> None:
    found = others_that_say(word)
    advice = f"{len(found)} files say {word!r}, {OTHERS[word]} did: {ADVICE[word]}.\n" + "\n".join(found)
    assert len(found) <= OTHERS[word], advice


FURTHER_VALUE = """
from freshet import schema

schema.EDGE_COLUMNS += (schema.EdgeColumn("mass", "f4", 0, "mass"),)
schema.PLAIN_EDGE += (0,)

import numpy as np

from freshet.gnn.oracles.edges import SortedEdges
from freshet.job.results.plain_graph import PlainGraph, SnapshotGraph
from freshet.job.results.plain_rules import Event
from freshet.operators.graph.edge_changes import edge_changes
from freshet.operators.graph.part_rows import PartRows
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import Events
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features
from freshet.state.sweep import Sweeper
from freshet.state.task_parts import TaskParts

CTL = np.zeros(8, np.int64)
core, at = Partitioner(1, Features(1)), PartRows(0, TaskParts.dealt(1, 1))
truth = ReferenceGraph(Features(1))
sweeper = Sweeper(core.tables)


def changes(*rows, value="mass"):
    events = Events.decode(events_of(rows).encode())
    truth.apply(events)
    (block,) = core.split(core.partition(events), CTL, 0)
    found = edge_changes(block, at, at, value)
    return [[column.tolist() for column in group[2:-1]] for group in found]  # the last has what tells keys apart


assert changes(("add_edge", 1, 2, 0.5, "", 3, 7.0), ("add_edge", 2, 1)) == [[[]], [[], []], [[7.0, 0.0]]]
assert changes(("add_edge", 1, 2, 0.5, "", 3, 7.0)) == [[[]], [[], []], [[]]]
assert changes(("add_edge", 1, 2, 0.5, "", 3, 8.0)) == [[[]], [[7.0], [8.0]], [[]]]
assert changes(("add_edge", 1, 2, 0.5), ("add_edge", 1, 2, 0.5, "", -1, 8.0)) == [[[]], [[], []], [[]]]
assert changes(("add_edge", 1, 2, 2.0, "", -1, 8.0), value="weight") == [[[]], [[0.5], [2.0]], [[]]]

state = {}
for epoch in (1, 2):  # the first marker's pages are whole at the second
    state.update(sweeper.mark(epoch)[0].puts)
core = Partitioner(1, Features(1))
Sweeper(core.tables).restore(state.items())
core.after_restore()
assert changes(("del_edge", 1, 2), ("add_edge", 3, 3, 1.0, "", -1, 9.0)) == [[[8.0]], [[], []], [[9.0]]]
live = core.live_graph()
assert live.values.full_columns()["mass"].tolist() == [0.0, 9.0] and live.values.weight.tolist() == [1.0, 1.0]
assert truth.arrays().graph.values.kept().tolist() == [[1.0, 1.0], [0.0, 9.0]]

edge = SnapshotGraph([1, 2], np.zeros((2, 1), np.float32), np.array([1]), schema.EdgeValues.default(1), [""])
checked = PlainGraph(Features(1), snapshot=edge)
checked.take(Event("add_edge", 1, 2, values=schema.edge_row({"mass": 4.0})))
checked.take(Event("add_edge", 2, 2, values=schema.edge_row({"mass": 5.0})))
_, src, dst, values = checked.arrays().graph
pieces = SortedEdges(2, src, dst, values).pieces()
assert [part.values.kept().tolist() for *_, part in pieces] == [[[1.0, 1.0], [4.0, 5.0]]]
print("done")
"""


def test_a_further_value_of_edges_is_a_line_in_the_schema() -> None:
    """Events bring it, journals and states keep it, messages and full passes may read it: no other file knows it."""
    done = subprocess.run([sys.executable, "-c", FURTHER_VALUE], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\n", done.stderr
