"""The rules that a graph follows, and the configuration of a Partitioner: these and a strategy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from freshet.state.seed import SEED_BITS

HYBRID, HDRF, LOCALITY, HASH = range(4)
Strategy = Literal["hybrid", "hdrf", "locality", "hash"]
SnapshotPlacement = Literal["whole", "stream"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
WHOLE, STREAM = PLACEMENTS = get_args(SnapshotPlacement)
SPLITTING_NONE = frozenset({"locality", "hash"})  # of the strategies: all in-edges of a vertex lie in its part
EDGE_KEYS = ("", "int", "string")
TYPES_MAX = 32_767
LOOP_OF_SECOND_TYPE, ONE_TYPE_TOO_MANY, OTHER_ATTR_WIDTH, LOOP_OF_SECOND_KEY, LOOP_IN_RELATION = 1, 2, 3, 4, 5
DAY_MS = 86_400_000
_UNITS_MS = {"d": DAY_MS, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}
REASONS = {
    LOOP_OF_SECOND_TYPE: "a self-loop of a second edge type: GCN layers that add self-loops know one per vertex",
    ONE_TYPE_TOO_MANY: "type: expected at most {bound} edge types at a time in a job, got {name} as one more",
    LOOP_OF_SECOND_KEY: "a second self-loop, with another key: GCN layers that add self-loops know one per vertex",
    LOOP_IN_RELATION: "a second self-loop, with another key: GCN layers that add self-loops know one per vertex in "
    "relation {name}",
    OTHER_ATTR_WIDTH: "attr: expected {width} numbers, as the job's first edge with attr has, got {numbers}",
}


@dataclass(frozen=True, slots=True)
class GraphRules:
    """Rules by which events change a graph, whoever keeps it: the Partitioner, `freshet embed` or `freshet check`.

    `undirected`: each edge event also acts on the edge the other way round. `forbid_typed_loops`: a self-loop is
    rejected where one of another type stands (GCN). `edge_types` is a typed model's list, in relation order, of which
    the first is the default; without one, edges may have `types_max` types at a time beside the default. `weighted`:
    messages read the weights of edges. `out_degrees`: layers read the degrees of sources over their out-edges.
    `degree_relations`: the numbers of the relations within one kind of which layers read the degrees of vertices.
    `one_loop_relations`: of those in which a vertex has one self-loop at most, and one with another key is rejected.
    `edge_ttl_ms`: an edge expires in the first epoch whose largest `ts` so far is greater than the `ts` of its last add
    by more than that; 0: none does. `ts_jump_ms`: how far a `ts` may be ahead of those around it; 0: any; None: a day
    where edges expire, else any. `edge_keys`: "int" or "string", the kind of the keys by which parallel edges are
    several; "": edges have none, and there is one of each pair and type.
    """

    undirected: bool = False
    forbid_typed_loops: bool = False
    edge_types: tuple[str, ...] | None = None
    types_max: int = TYPES_MAX
    weighted: bool = True
    out_degrees: bool = False
    degree_relations: tuple[int, ...] = ()
    one_loop_relations: tuple[int, ...] = ()
    edge_ttl_ms: int = 0
    ts_jump_ms: int | None = None
    edge_keys: str = ""

    @property
    def jump_ms(self) -> int:
        """Milliseconds that a `ts` may be ahead of those around it, 0: any."""
        if self.ts_jump_ms is None:
            return DAY_MS if self.edge_ttl_ms else 0
        return self.ts_jump_ms

    @property
    def is_timed(self) -> bool:
        """True if the `ts` of events matters to the graph."""
        return self.edge_ttl_ms > 0 or self.jump_ms > 0


NO_RULES = GraphRules()  # but for the number of types


@dataclass(frozen=True, slots=True)
class PartitionerConfig:
    """Placement of edges, and rules of the graph.

    `hdrf_lambda` is HDRF's balance coefficient (0: replicas alone count), `hdrf_epsilon` keeps its division finite.
    `hybrid_threshold` is the in-degree up to which in-edges join their destination's part. `snapshot_placement` says
    how hybrid and locality place a snapshot: with all of it in view, or edge by edge as what comes later. Graph rules
    stand here one by one, as settings record them. `key_bits` below 64 makes string keys collide (for tests).
    `hash_seed` is the job's own, for its life: who does not know it cannot make up ids that fall on one place.

    Raises:
        ValueError: a value out of range, by name.
    """

    strategy: str = "hybrid"
    hdrf_lambda: float = 2.0
    hdrf_epsilon: float = 1.0
    hybrid_threshold: int = 1000
    snapshot_placement: str = WHOLE
    undirected: bool = False
    id_kind: str = "int"
    forbid_typed_loops: bool = False
    edge_types: tuple[str, ...] | None = None
    types_max: int = TYPES_MAX
    out_degrees: bool = False
    degree_relations: tuple[int, ...] = ()
    one_loop_relations: tuple[int, ...] = ()
    edge_ttl_ms: int = 0
    ts_jump_ms: int | None = None
    edge_keys: str = ""
    key_bits: int = 64
    hash_seed: int = 0

    def __post_init__(self) -> None:
        for name, good, expected in (
            ("strategy", self.strategy in STRATEGIES, " | ".join(STRATEGIES)),
            ("hdrf_lambda", self.hdrf_lambda >= 0, "a number >= 0"),
            ("hdrf_epsilon", self.hdrf_epsilon > 0, "a number > 0"),
            ("hybrid_threshold", self.hybrid_threshold >= 0, "a number >= 0"),
            ("snapshot_placement", self.snapshot_placement in PLACEMENTS, " | ".join(PLACEMENTS)),
            ("id_kind", self.id_kind in ("int", "string"), "int | string"),
            ("edge_ttl_ms", self.edge_ttl_ms >= 0, "a number >= 0"),
            ("ts_jump_ms", (self.ts_jump_ms or 0) >= 0, "a number >= 0, or None"),
            ("edge_keys", self.edge_keys in EDGE_KEYS, "int | string, or nothing"),
            ("key_bits", 1 <= self.key_bits <= 64, "1 to 64"),
            ("hash_seed", 0 <= self.hash_seed < 1 << SEED_BITS, f"0 to 2**{SEED_BITS} - 1"),
        ):
            if not good:
                msg = f"{name}: expected {expected}, got {getattr(self, name)!r}"
                raise ValueError(msg)

    @staticmethod
    def of(rules: GraphRules, **others: Any) -> PartitionerConfig:
        """Return the configuration of a graph that follows these rules."""
        return PartitionerConfig(**{name: getattr(rules, name) for name in _RULES} | others)

    @property
    def rules(self) -> GraphRules:
        """The rules that the graph follows."""
        return GraphRules(**{name: getattr(self, name) for name in _RULES})

    @property
    def key_kind(self) -> int:
        """The kind of edges' keys as kernels know it."""
        return EDGE_KEYS.index(self.edge_keys)

    @property
    def strategy_code(self) -> int:
        """The strategy as kernels know it."""
        return STRATEGIES.index(self.strategy)

    @property
    def places_whole(self) -> bool:
        """True if a snapshot is placed as a whole."""
        return self.snapshot_placement == WHOLE and self.strategy_code in (HYBRID, LOCALITY)


_RULES = {one.name for one in fields(GraphRules)} & {one.name for one in fields(PartitionerConfig)}


def duration_in_words(duration_ms: int) -> str:
    """Return a duration as options have it: `30d`, `36h`, `1500ms`."""
    unit = next(unit for unit, length in _UNITS_MS.items() if duration_ms % length == 0)
    return f"{duration_ms // _UNITS_MS[unit]}{unit}"
