"""What a Partitioner is told: strategy and graph rules."""

from __future__ import annotations

from dataclasses import dataclass

HYBRID, HDRF, LOCALITY, HASH = range(4)
STRATEGIES = ("hybrid", "hdrf", "locality", "hash")
LOOP_OF_SECOND_TYPE = 1
REASONS = {
    LOOP_OF_SECOND_TYPE: "a self-loop of a second edge type: GCN layers know one self-loop per vertex",
}


@dataclass(frozen=True, slots=True)
class PartitionerConfig:
    """How edges are placed and which rules the graph follows.

    `hdrf_lambda` is HDRF's balance coefficient (0: replicas alone count), `hdrf_epsilon` keeps its division finite.
    `hybrid_threshold` is the in-degree up to which in-edges join their destination's part.
    `edge_types` is a typed model's list, in relation order. `key_bits` below 64 makes string keys collide (for tests).

    Raises:
        ValueError: a value out of range, by name.
    """

    strategy: str = "hybrid"
    hdrf_lambda: float = 2.0
    hdrf_epsilon: float = 1.0
    hybrid_threshold: int = 100
    undirected: bool = False
    id_kind: str = "int"
    forbid_typed_loops: bool = False
    edge_types: tuple[str, ...] | None = None
    key_bits: int = 64

    def __post_init__(self) -> None:
        for name, good, expected in (
            ("strategy", self.strategy in STRATEGIES, " | ".join(STRATEGIES)),
            ("hdrf_lambda", self.hdrf_lambda >= 0, "a number >= 0"),
            ("hdrf_epsilon", self.hdrf_epsilon > 0, "a number > 0"),
            ("hybrid_threshold", self.hybrid_threshold >= 0, "a number >= 0"),
            ("id_kind", self.id_kind in ("int", "string"), "int | string"),
            ("key_bits", 1 <= self.key_bits <= 64, "1 to 64"),
        ):
            if not good:
                message = f"{name}: expected {expected}, got {getattr(self, name)!r}"
                raise ValueError(message)

    @property
    def strategy_code(self) -> int:
        """The strategy as kernels know it."""
        return STRATEGIES.index(self.strategy)
