"""A model with kinds, compiled for incremental work: what each kind sends and updates, what each relation sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from freshet.gnn.answers import LayerAnswers
from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.kind_layers.columns import NO_CONTEXTS, Columns
from freshet.gnn.kind_layers.grouping import Group, ReadSums
from freshet.gnn.kind_layers.relation_conv import InEdges, RelationConvPlan
from freshet.gnn.kind_layers.typed_sums import TypedSums
from freshet.gnn.kinds.learned import LearnedRows
from freshet.gnn.layers.base import Context, Contexts
from freshet.gnn.layers.carrying import Carry
from freshet.gnn.layers.chain import LogitsHead
from freshet.gnn.layers.segment import Segment
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.rows.jumps import CURRENT
from freshet.gnn.synopses.edge_network import EdgeNetwork
from freshet.gnn.synopses.of_messages import Synopsis
from freshet.schema import Features

_ONE = Context(np.ones(1, np.int32), np.ones(1), np.full(1, np.nan, np.float32))  # of a vertex with an in-edge


@dataclass(frozen=True, eq=False)
class RelationPlan:
    """One relation in one layer, or many that share a store: what that needs.

    `numbers`: of the relations in the model; `source`, `target`: numbers of kinds. A message reads `source_columns` of
    the row that its source's kind sends, and `target_columns` of what its target's sends; those are none where it reads
    no target. The rest is that of a LayerPlan; the columns that a synopsis or network names count from the begin of
    these.
    """

    numbers: tuple[int, ...]
    source: int
    target: int
    source_columns: slice
    target_columns: slice
    conv: RelationConvPlan
    reads_in_edges = True

    @property
    def has_pairs(self) -> bool:
        """True if a store has synopses of (vertex, relation) pairs, for many relations."""
        return isinstance(self.conv, TypedSums)

    @property
    def one_loop(self) -> bool:
        """True if a self-loop stands in for the one that the conv adds, so there may be one alone in the relation."""
        return self.conv.one_loop

    @property
    def number(self) -> int:
        """Number of the relation, or of the first one."""
        return self.numbers[0]

    @property
    def name(self) -> str:
        """The conv's type."""
        return self.conv.name

    @property
    def message_width(self) -> int:
        """Width of what a message reads of its source."""
        return self.conv.source.width

    @property
    def target_width(self) -> int:
        """Width of what a message reads of its target, 0 if nothing."""
        return 0 if self.conv.target is None else self.conv.target.width

    @property
    def synopsis(self) -> Synopsis:
        """Form of the aggregate, and so what the storage may do with it."""
        return self.conv.synopsis

    @property
    def synopsis_width(self) -> int:
        """Width of a synopsis row."""
        return self.synopsis.width(self.message_width)

    @property
    def state_width(self) -> int:
        """Width of what update reads of a vertex's synopses: of one, or of the fold of many."""
        return self.conv.out_width if self.has_pairs else self.synopsis_width

    @property
    def edge(self) -> EdgeReads:
        """Description of what messages read of an edge, and which edges are messages."""
        return self.conv.edge

    @property
    def network(self) -> EdgeNetwork | None:
        """The network that makes each message of both ends of its edge, where one does."""
        return self.conv.network

    @property
    def reads_count(self) -> bool:
        """The update of the target's kind depends on the number of in-edges of the relation."""
        return self.conv.reads_count


class KindPlan:
    """Plan of the vertices of one kind in a layer: a row that they send, and an update from the synopses of relations.

    It has what LayerPlan has of a layer's rows; for what a layer has of edges see RelationPlan. A kind may send and
    make no row any more (`updates` False), or make one without sending any.

    Invariant: update(synopses of the relations into the kind, own row, counts) is x_l of PyG's full pass.
    tests/unit/gnn/kinds/test_kinds_plan.py checks. Rows' bits depend on the row (and its counts or degrees) alone.
    """

    reads_out_degrees = False
    scales_by_loops = False
    root_width = 0
    epilogue = None

    def __init__(
        self,
        number: int,
        columns: tuple[Columns, Columns],
        group: Group | None,
        carry: Carry,
        segments: tuple[Segment, Segment],
    ) -> None:
        """Take the columns of a message, and those of the self input; the layers before the conv and behind it.

        `number` is that of the kind. `group` None: the kind makes rows of what it has kept alone, or none.
        """
        self.number, self._group, self._carry, self._segments = number, group, carry, segments
        self._message, self._own = columns
        self.relations: list[int] = []
        """The relations into the kind, as places in `KindsLayer.relations`, in the order that update takes them in."""
        self.read_degrees: list[int | None] = []
        """Numbers of the relations within the kind of which update reads the vertex's degrees."""
        self.sent_degrees: list[int | None] = []
        """Numbers of those whose degrees decide what a vertex sends."""
        self.in_width, self.out_width = carry.into.width, carry.out.width
        self.message_width, self.carried_width = self._message.width, carry.across.width
        reads = [] if group is None else group.reads
        self.self_is_message = bool(reads) and not self.carried_width and all(one in self._message for one in reads)
        self.self_width = 0 if self.self_is_message else self._own.width + self.carried_width
        self.reads_self = bool(reads) or self.carried_width > 0
        self._read = self._message if self.self_is_message else self._own
        self._names_one = carry.into.width > 0 and list(carry.into.columns) == [CURRENT]

    @property
    def updates(self) -> bool:
        """True if the kind has rows behind the layer that anything reads."""
        return self.out_width > 0

    @property
    def sends(self) -> bool:
        """True if the kind's rows are read in the layer, by relations or by the kind itself."""
        return self.message_width + self.self_width > 0

    @property
    def source_scaled(self) -> bool:
        """True if what a vertex sends depends on its degrees, so that changed ones re-send it."""
        return bool(self.sent_degrees)

    @property
    def reads_context(self) -> bool:
        """True if update depends on the numbers of in-edges."""
        return self._group is not None and self._group.reads_count

    def send(self, x: Rows, ctx: Contexts = NO_CONTEXTS) -> Rows:
        """Return what vertices send: the message columns, then the self input, which stays in their own task.

        `ctx` has their degrees in `sent_degrees`.

        Shapes: x (n, in_width) float32, left as it is; result (n, message_width + self_width) float32 C-contiguous. The
        result may be x itself where the kind sends its rows as they are.
        """
        x = np.ascontiguousarray(x, np.float32)
        with np.errstate(all="ignore"):  # infinities and NaN are results, as in PyG
            kept = {CURRENT: x} if self._names_one else self._carry.into.split(x)
            rows = self._segments[0].apply(kept.get(CURRENT, x), kept, own=False)
            parts = [self._message.made(rows, ctx)] if self.message_width else []
            if not self.self_is_message and self._own.width:
                parts.append(self._own.made(rows, ctx))
            if self.carried_width:
                kept[CURRENT] = rows
                parts.append(self._carry.across.join(kept))
        if not parts:
            return np.empty((len(x), 0), np.float32)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def update(self, aggregates: Sequence[Rows], own: Rows, counts: Sequence[InEdges]) -> Rows:
        """Return x_l from the synopses of messages, un-normalised, self inputs and numbers of in-edges.

        Shapes: aggregates, one for each of `relations`, (n, synopsis_width) float32; own (n, self_width), or (n,
        message_width) if self_is_message; counts, one for each of `relations`, (n,) int32, or the Context in one of
        `read_degrees`; result (n, out_width) float32 in new rows. aggregates and own are left as they are.
        """
        with np.errstate(all="ignore"):
            if self._group is None:
                return self._behind(own[:, :0], own, is_new=False)
            return self._behind(self._group.apply(aggregates, own, counts, self._read), own, is_new=True)

    @property
    def sums(self) -> Sequence[ReadSums]:
        """Places of what `update_sums` reads of each of `relations`; empty for a plan that `update` is for."""
        return () if self._group is None else self._group.sums

    def room(self, vertices: int) -> tuple[Rows, list[Rows]]:
        """Return arrays for what is read of vertices, as `sums` says: columns, and the rows of those without."""
        assert self._group is not None  # or `sums` is empty
        return self._group.room(vertices)

    def update_sums(self, wide: Rows, alone: Sequence[Rows], own: Rows) -> Rows:
        """Return the rows that `update` returns, from sums and means that were read to `room`, which it changes."""
        assert self._group is not None  # or `sums` is empty
        with np.errstate(all="ignore"):
            return self._behind(self._group.summed(wide, alone, own, self._read), own, is_new=True)

    def _behind(self, rows: Rows, own: Rows, *, is_new: bool) -> Rows:
        kept = self._carry.across.split(own[:, own.shape[1] - self.carried_width :]) if self.carried_width else {}
        kept[CURRENT] = self._segments[1].apply(rows, kept, own=is_new)
        made = self._carry.out.join(kept)
        return made if made.base is None and made is not own else np.array(made, np.float32, order="C")


@dataclass(frozen=True, eq=False)
class KindsLayer:
    """One layer: a plan for each kind that has a part in it, by number, and the relations that it reads."""

    kinds: list[KindPlan | None]
    relations: list[RelationPlan]


@dataclass(frozen=True, eq=False)
class KindsPlan:
    """Executable form of a model with kinds: `layers[0]` is layer 1, which reads raw features.

    `features.kinds` has kinds and relations, in the order of their numbers. The last layer's rows of the kinds in `out`
    are the embeddings.
    """

    layers: list[KindsLayer]
    features: Features
    edge_types: list[str]
    """Names of the relations in events."""
    out: dict[str, int]
    """Widths of the embeddings of the kinds that are returned."""
    sha256: str
    learned: Sequence[LearnedRows | None] = ()
    """Learned rows by kind, which stand behind its features; of no kind where it is empty."""
    heads: Mapping[str, LogitsHead] = field(default_factory=dict)
    """Heads by kind, of the kinds that have one."""
    checks: Sequence[LayerAnswers] = ()
    """Findings of the export about the layers."""

    @property
    def row_widths(self) -> list[int]:
        """Width of the rows in front of layer 1 by kind: features and learned rows."""
        widths = self.features.widths
        learned = self.learned or (None,) * len(widths)
        return [width + (0 if one is None else one.width) for width, one in zip(widths, learned, strict=True)]

    @property
    def out_width(self) -> int:
        """Width of the embedding, of a model that returns one kind."""
        (width,) = self.out.values()
        return width

    def warm_up(self) -> None:
        """Run every layer once on a single row, so that kernels are compiled before the first event waits for them."""
        one = np.ones(1, np.int32)
        for layer in self.layers:
            for plan in layer.kinds:
                if plan is None:
                    continue
                degrees: Contexts = dict.fromkeys((*plan.read_degrees, *plan.sent_degrees), _ONE)
                sent = plan.send(np.zeros((1, plan.in_width), np.float32), degrees)
                own = sent if plan.self_is_message else sent[:, plan.message_width :]
                if plan.updates:
                    into = [layer.relations[place] for place in plan.relations]
                    aggregates = [np.zeros((1, relation.state_width), np.float32) for relation in into]
                    counts = [degrees[at.number] if at.number in plan.read_degrees else one for at in into]
                    plan.update(aggregates, np.ascontiguousarray(own), counts)
        for kind, head in self.heads.items():
            head.logits(np.zeros((1, self.out[kind]), np.float32))
