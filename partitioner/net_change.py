"""The net change of an epoch: records in groups, each with the part that it goes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshet.kinds import Kinds
from freshet.schema import FeatureRows

# The groups: positions in `counts`.
BORN, DEAD, REPLICAS, FREED, RETIRED, DELETED, REWEIGHTED, ADDED, CONTEXTS, SPLIT, WHOLE, FEATURES, DROPPED = range(13)
DEGREES = 13

# Columns of all records but the dropped ones: where the record goes to, and a slot there (of an edge's source). TO is a
# part; of vertices of kind k it is k parts further, and so are edges of relation k and degrees in it.
TO, SLOT = 0, 1
VERTEX_ROW = 2  # of the born
HOME_PART, HOME_SLOT = 2, 3  # of replicas: where the master is
REPLICA_PART = 2  # of the retired, which go to the master: where the replica was
# Of edges; their values from there on, those before a change and then the new ones. Behind them, where edges have
# attributes or keys, what tells parallel ones apart: their type or, with keys, their row. Last, where they have
# attributes, of all but the deleted the event whose attributes they have.
DST_SLOT, EDGE_VALUES = 2, 3
IN_EDGES, LOOP_WEIGHT, OUT_EDGES = 2, 3, 4  # of contexts; of degrees the first two
X_ROW = 2  # of features: the row of x, or < 0 for zeros
# Columns of the dropped: a vertex, and a part where it has no slot any more.
DROPPED_ROW, DROPPED_PART = 0, 1


class Effects(NamedTuple):
    """Counts of an epoch's accepted events that may not have done what was meant.

    `replaced`: an edge was added that was there. `unchanged`: an event after which the graph is as before, among those
    that add an edge or a vertex; features and attributes, which the Partitioner does not have, count as changed.
    `nothing_deleted` of the `deletions` were of an edge or a vertex that was not there.
    """

    replaced: int = 0
    unchanged: int = 0
    deletions: int = 0
    nothing_deleted: int = 0


NO_EFFECTS = Effects()


class Records(NamedTuple):
    """Scratch memory for the records: arrays (columns, capacity) int32, `counts` of which are filled.

    Values of edges are the bits of float32s. What does not fit a column stands beside the group: keys (capacity,)
    int64, weighted in-degrees (capacity,) float64.
    """

    counts: np.ndarray  # (16,) int64, by group
    born: np.ndarray  # new masters
    born_keys: np.ndarray
    dead: np.ndarray  # masters that end
    dead_keys: np.ndarray
    replicas: np.ndarray  # new replicas
    freed: np.ndarray  # replicas that end
    retired: np.ndarray  # of living masters: a replica that ends
    deleted: np.ndarray  # edges
    reweighted: np.ndarray
    added: np.ndarray
    contexts: np.ndarray  # masters whose in-edges changed, or out-edges where layers read these
    degrees: np.ndarray  # beside `contexts`
    out_degrees: np.ndarray  # likewise; (0,) where no layer reads them
    split: np.ndarray  # masters that get their first in-edge in another part
    whole: np.ndarray  # masters that have lost their last one there
    features: np.ndarray  # masters with new features
    dropped: np.ndarray  # slots to be given back at the end of the epoch
    added_rows: np.ndarray  # (capacity,) rows of the added edges
    degrees_in: np.ndarray  # masters whose in-edges of one relation changed, where layers read their degrees
    sums_in: np.ndarray  # beside `degrees_in`


def make_records(
    vertices: int,
    before: int,
    fresh: int,
    parts: int,
    values: int,
    *,
    out_degrees: bool = False,
    degree_relations: bool = False,
    attributed: bool = False,
    keyed: bool = False,
) -> Records:
    """Memory for that many touched vertices, and edges: those that were there before, and those that were not.

    Each edge has `values` values, and perhaps attributes or a key. `out_degrees`: contexts have those of out-edges,
    too. `degree_relations`: there are relations of which layers read degrees.
    """

    def ints(columns: int, rows: int) -> np.ndarray:
        return np.empty((columns, rows), np.int32)

    # A replica comes with the end of a fresh edge and goes with that of one before; a vertex has one in a part at most.
    coming, going = (min(2 * edges, vertices * (parts - 1)) for edges in (fresh, before))
    changing = vertices if parts > 1 else 0
    ends = before + fresh if degree_relations else 0
    apart = values + (attributed or keyed)
    return Records(
        counts=np.zeros(16, np.int64),
        born=ints(3, vertices),
        born_keys=np.empty(vertices, np.int64),
        dead=ints(2, vertices),
        dead_keys=np.empty(vertices, np.int64),
        replicas=ints(4, coming),
        freed=ints(2, going),
        retired=ints(3, going),
        deleted=ints(EDGE_VALUES + apart, before),
        reweighted=ints(EDGE_VALUES + values + apart + attributed, before),
        added=ints(EDGE_VALUES + apart + attributed, fresh),
        contexts=ints(5, vertices),
        degrees=np.empty(vertices, np.float64),
        out_degrees=np.empty(1 + vertices if out_degrees else 0, np.float64),
        split=ints(2, changing),
        whole=ints(2, changing),
        features=ints(3, vertices),
        dropped=ints(2, vertices + going),
        added_rows=np.empty(fresh, np.int32),
        degrees_in=ints(4, ends),
        sums_in=np.empty(ends, np.float64),
    )


@dataclass(frozen=True, slots=True)
class EpochChange:
    """Net change of an epoch's events. Its arrays are the Partitioner's memory, valid until the next `partition`.

    Shapes: x k rows, the features that the records point into; names (offsets, bytes) of the ids of the
    born vertices in record order, for string ids; attr (events, width) float32, of the events that the records of edges
    point into, None where edges have no attributes.
    Invariant: the order of records is a function of the events since the start, not of tables' capacities.
    """

    records: Records
    x: FeatureRows
    names: tuple[np.ndarray, np.ndarray] | None
    rejected: list[tuple[int, str]]  # event, reason
    attr: np.ndarray | None = None
    kinds: Kinds | None = None
    event_ts: int | None = None  # the largest `ts` of the events that were not rejected
    effects: Effects = NO_EFFECTS
    keyed: bool = False  # whether edges have keys, so that records of them have rows
