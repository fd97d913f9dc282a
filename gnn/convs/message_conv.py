"""Declaration of a conv whose message is a program over what it reads of an edge."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from freshet.gnn.convs.base import Aggregator, AnyAggregator, Conv, ExistingLoops, check_existing_loops
from freshet.gnn.convs.program import Program, factor_of_weight, is_linear, program_tensors, reads_of, widths_of
from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.rows.layer import Shape, Width


class MessageConv(Conv):
    """x_v' = aggr_u message(x_u, x_v, w_uv, e_uv), where `program` makes the message step by step.

    Linear layers around it, the own row and a bias are layers of rows before and behind it. Where a message reads
    other rows of its target than of its source, both stand side by side in x, and the program reads its columns.
    In a relation, where convs stand side by side, the program reads the rows of the two kinds as they are, and
    x_v' = update(aggr_u message(...), x_v).

    Args:
        in_channels: Width of the rows it reads, at least 1.
        out_channels: Width of the rows it makes, that of a message times the number of aggregators; of softmax that
            of the values.
        edge_channels: Width of the attributes e_uv of an edge; 0: it reads none.
        aggr: Aggregate of the messages: sum, mean, max, min, std, var, mul (the product, 1 of no messages) or a
            Quantile, or several of them; or softmax, where a message is [scores | values], a score for each head, and
            the values of a head are summed with the weights exp(score), divided by their sum.
        heads: Number of heads of softmax.
        add_self_loops: Whether each vertex gets a self-loop: one message more, from itself to itself.
        existing_loops: Treatment of self-loops that the graph has: keep, they replace the added ones, or are edges like
            any other where none are added; beside, they are edges in addition to those; drop, they are left out.
        self_value: The weight of added self-loops, and each number of their attributes.
        self_columns: First column of x with the attributes of a vertex's added self-loop, in place of self_value.
        self_messages: First column of x with the message of a vertex's added self-loop, in place of the program.
        program: Steps, the last of which makes the message (gnn/convs/program.py); at most 256.
        target_channels: Width of the rows of targets in a relation whose ends are given as two; else left out.
        update: Steps, the last of which makes x_v' of the aggregate and x_v, in a relation; left out: the aggregate.

    Weights: those of step i, as program.i.NAME or update.i.NAME: of a layer of rows with that layer's names and shapes,
    of a constant value, (width,). All float32.

    Shapes: x (n, in_channels) float32, e (edges, edge_channels) float32, result (n, out_channels) float32.
    Raises: ValueError where widths do not fit, existing loops are to keep their attributes, or be beside none, or for
        an unknown option or value.
    Source: Fey and Lenssen, Fast graph representation learning with PyTorch Geometric (2019).
    """

    LATER: ClassVar[dict[str, Any]] = {
        **{"add_self_loops": False, "existing_loops": "keep", "self_value": 1.0},
        **{"self_columns": None, "self_messages": None},
        **{"target_channels": None, "update": None},
    }

    BETWEEN_KINDS: ClassVar[bool] = True
    type: Literal["message_conv"] = "message_conv"
    edge_channels: Annotated[int, Field(ge=0)] = 0
    aggr: AnyAggregator | Annotated[tuple[AnyAggregator, ...], Field(min_length=1)] | Literal["softmax"] = "sum"
    heads: Width = 1
    add_self_loops: bool = False
    existing_loops: ExistingLoops = "keep"
    self_value: float = 1.0
    self_columns: Annotated[int, Field(ge=0)] | None = None
    self_messages: Annotated[int, Field(ge=0)] | None = None
    program: Program
    target_channels: Width | None = None
    update: Program | None = None

    @model_validator(mode="after")
    def _widths_fit(self) -> MessageConv:
        made, out = self.message_width, self.aggregate_width
        if self.aggr == "softmax" and (out < 1 or out % self.heads):
            msg = f"message_conv: {self.heads} heads of softmax, but a message of width {made} is no score and value "
            raise ValueError(msg + "for each of them")
        if self.aggr != "softmax" and self.heads != 1:
            msg = f"message_conv: heads {self.heads} is for softmax, got aggr {self.aggr}"
            raise ValueError(msg)
        if self.update is not None:
            inputs = {"aggregate": out, "own": self.target_width}
            out = widths_of(self.update, inputs, "message_conv.update")[-1]
        if out != self.out_channels:
            made_by = "program and aggr make" if self.update is None else "the update makes"
            msg = f"message_conv: {made_by} rows of width {out}, expected out_channels {self.out_channels}"
            raise ValueError(msg)
        reads = self.reads
        if self.edge_channels and "attr" not in reads:
            msg = f"message_conv: edge_channels {self.edge_channels}, but the message reads no attributes"
            raise ValueError(msg)
        self._check_loops()
        check_existing_loops("message_conv", self.existing_loops, self.add_self_loops)
        if self.add_self_loops and self.existing_loops == "keep" and "attr" in reads:
            msg = "message_conv: existing_loops keep, but the message reads attributes; expected beside or drop"
            raise ValueError(msg)
        return self

    def _check_loops(self) -> None:
        """Check that x has the columns with what self-loops have, one of both."""
        widths = {"self_columns": self.edge_channels, "self_messages": self.message_width}
        given = {name: first for name in widths if (first := getattr(self, name)) is not None}
        for name, first in given.items():
            end = first + widths[name]
            if not self.add_self_loops or not widths[name] or end > self.in_channels or len(given) > 1:
                msg = f"message_conv: {name} {first} needs add_self_loops, edge_channels, no other columns for loops, "
                raise ValueError(msg + f"and x with columns up to {end}, got in_channels {self.in_channels}")
            if name == "self_messages" and self.existing_loops == "keep":
                msg = f"message_conv: {name} {first}, but existing_loops keep has messages of their own; expected "
                raise ValueError(msg + "beside or drop")

    @property
    def aggregates(self) -> int:
        """Number of aggregators."""
        return len(self.kinds)

    @property
    def kinds(self) -> tuple[AnyAggregator | Literal["softmax"], ...]:
        """The aggregators, one by one."""
        return self.aggr if isinstance(self.aggr, tuple) else (self.aggr,)

    @property
    def changes_loops(self) -> bool:
        """True if it adds self-loops, or leaves out those that are there."""
        return self.add_self_loops or self.existing_loops != "keep"

    @property
    def last(self) -> str:
        """Name of the step that makes the message."""
        return str(len(self.program) - 1)

    @property
    def reads(self) -> set[str]:
        """The inputs that the message reads, of source, target, weight and attr."""
        return reads_of(self.program, self.last)

    @property
    def reads_own(self) -> bool:
        """True if the message reads its target's row, each vertex gets a self-loop, or the update reads it."""
        return "target" in self.reads or self.add_self_loops or "own" in self.update_reads

    @property
    def sent(self) -> str | None:
        """Name of the step whose rows sources send, where a message is that, or that times the weight.

        None for messages that are made edge by edge, as where those of added self-loops are columns of x.
        """
        if self.self_messages is not None:
            return None
        weighed, reads = factor_of_weight(self.program), self.reads
        last = self.last if weighed is None else weighed
        plain = reads_of(self.program, last) <= {"source"} and reads <= {"source", "weight"}
        plain = plain and all(kind in get_args(Aggregator) for kind in self.kinds)
        return last if plain and (weighed is not None or "weight" not in reads) else None

    @property
    def edge(self) -> EdgeReads:
        """Description of what its messages read of an edge."""
        return EdgeReads("weight" in self.reads, self.edge_channels, self.skips_loops, by_network=self.sent is None)

    @property
    def update_reads(self) -> set[str]:
        """The inputs that the update reads, of aggregate and own."""
        return {"aggregate"} if self.update is None else reads_of(self.update, str(len(self.update) - 1))

    @property
    def is_linear(self) -> bool:
        """True if the message is linear in its source's row, and reads nothing else."""
        return is_linear(self.program, self.last)

    @property
    def message_width(self) -> int:
        """Width of a message.

        Raises: ValueError naming the first step that does not fit.
        """
        return self.widths[-1]

    @property
    def widths(self) -> list[int]:
        """Width of each step of the program.

        Raises: ValueError naming the first step that does not fit.
        """
        inputs = {"source": self.in_channels, "target": self.target_width, "weight": 1, "attr": self.edge_channels}
        return widths_of(self.program, inputs, "message_conv.program")

    @property
    def aggregate_width(self) -> int:
        """Width of the aggregate of messages."""
        made = self.message_width
        return made - self.heads if self.aggr == "softmax" else made * self.aggregates

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return program_tensors(self.program, "program") | program_tensors(self.update or (), "update")
