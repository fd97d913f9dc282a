"""Division of a memory budget among a layer's arrays, and the smallest sufficient one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from freshet.errors import InputError
from freshet.gnn.plan import LayerPlan
from freshet.operators.aggregates.accumulator import MADE_AT_ONCE
from freshet.operators.aggregates.registry import aggregate_of

_MIB = 1 << 20
CONTEXT_BYTES = 16  # a vertex: count, degree, loop
STATE_BYTES = 9  # a destination of a pass: pending, state, where
USE_BYTES = 4
SLOT_BYTES = 24  # of a slot, beside its row: lists, buckets, what a piece needs
IN_FLIGHT = 4  # chunks: one being made, two waiting, one at work
MIN_SLOTS = 256
_SORTED_EDGE_BYTES = 80  # of an edge while a bucket is sorted, whose record has 16
_PASSES_MAX = 64  # of a layer whose destinations must fit, unless more are asked for


class BudgetError(InputError):
    """The budget is too small for the graph; the message says what would do."""


class LayerColumns(NamedTuple):
    """Columns that a layer keeps of a destination and computes of it."""

    in_width: int
    sent: int
    message: int
    own: int
    own_from: int
    out: int
    held: int = 0
    """Bytes of a destination where all those of a pass are in memory; 0 where its rows come and go."""
    synopsis: int = 0
    made: int = 0
    """Bytes of a message while it is made."""

    @property
    def columns(self) -> int:
        """Float64 columns of a slot: the sum, and the own row as float32; 0 where there is no cold store."""
        return 0 if self.held else self.message + (self.own + 1) // 2


def shape_of(layer: LayerPlan) -> LayerColumns:
    """Return the shape of a layer, with the place of its own row in the sent row, if it waits for that."""
    sent = layer.message_width + layer.self_width
    own, own_from = 0, 0
    if layer.reads_self:
        own, own_from = (layer.message_width, 0) if layer.self_is_message else (layer.self_width, layer.message_width)
    shape = LayerColumns(layer.in_width, sent, layer.message_width, own, own_from, layer.out_width)
    synopsis, aggregate = layer.synopsis, aggregate_of(layer.synopsis)
    if aggregate.spills:
        return shape
    state, targets = aggregate.accumulator_bytes(synopsis, layer.message_width), 4 * layer.message_width
    held = state + 4 * own + 4 + (targets if synopsis.reads_targets else 0)
    return shape._replace(held=held, synopsis=layer.synopsis_width, made=aggregate.made_bytes(synopsis))


@dataclass(frozen=True)
class LayerMemory:
    """Rows of each array of a layer's pass, and what they come to in bytes."""

    passes: int
    destinations: int
    slots: int
    chunk_rows: int
    chunk_edges: int
    block_rows: int
    update_rows: int
    bytes: int

    @property
    def needs_cold_store(self) -> bool:
        """Return whether the hot store may be too small for all destinations of a pass."""
        return self.slots < self.destinations


def file_block_rows(memory: int, vertices: int, width: int) -> int:
    """Rows of a block of a rows' file: read whole, and put in order in a second array."""
    room = min(16 * _MIB, _rest(memory, vertices) // 24)
    return max(16, min(max(vertices, 1), room // (4 * max(width, 1) + 12)))


def output_block_rows(memory: int, vertices: int, shape: LayerColumns, passes: int | None) -> int:
    """Rows of a block of a layer's output: as `file_block_rows`, and so few that each given pass has a block."""
    rows = file_block_rows(memory, vertices, shape.out)
    return rows if passes is None else max(16, min(rows, -(-vertices // passes)))


def _rest(memory: int, vertices: int) -> int:
    return memory - CONTEXT_BYTES * vertices


def layer_memory(
    memory: int,
    vertices: int,
    shape: LayerColumns,
    passes: int,
    block_rows: int,
    *,
    next_use: bool,
    reading_rows: int | None = None,
) -> LayerMemory:
    """Divide the budget among the arrays of a layer, for this number of passes.

    `block_rows`: of its output's file; `reading_rows`: of the file that it reads, if another budget has decided them.
    Raises: BudgetError when too little is left for the hot store.
    """
    blocks = -(-vertices // block_rows)
    destinations = min(vertices, -(-blocks // passes) * block_rows)
    state = (STATE_BYTES + USE_BYTES * next_use) * destinations
    rest = _rest(memory, vertices) - state
    reading_rows = reading_rows or file_block_rows(memory, vertices, shape.in_width)
    reading = 2 * block_rows_bytes(shape.in_width, reading_rows)
    if shape.held:
        return _held_memory(memory, vertices, shape, LayerMemory(passes, destinations, 0, 0, 0, block_rows, 0, reading))
    chunk = min(8 * _MIB, max(rest, 0) // 40)
    chunk_rows = max(16, chunk * 2 // 3 // (4 * (2 * shape.in_width + 2 * shape.sent) + 8))
    chunk_edges = max(64, chunk // 3 // 12)
    row = 4 * (1 + shape.message + shape.own)
    block = max(64, min(destinations, max(rest, 0) // 20 // row))
    temporary = 4 * (2 * (shape.message + shape.own) + 4 * shape.out) + 32
    update_rows = max(64, min(block, max(rest, 0) // 20 // temporary))
    used = reading + IN_FLIGHT * chunk + 2 * block * row + update_rows * temporary + 32 * block
    slot = 8 * shape.columns + SLOT_BYTES
    slots = min(destinations, (rest - used) // slot)
    if slots < min(destinations, MIN_SLOTS):
        raise _too_little(memory, vertices, passes)
    total = CONTEXT_BYTES * vertices + state + used + slots * slot
    return LayerMemory(passes, destinations, slots, chunk_rows, chunk_edges, block, update_rows, total)


def _too_little(memory: int, vertices: int, passes: int) -> BudgetError:
    return BudgetError(f"{memory:,} bytes are too few for {vertices:,} vertices in {passes} passes")


def _held_memory(memory: int, vertices: int, shape: LayerColumns, given: LayerMemory) -> LayerMemory:
    """Divide the budget where all destinations of a pass are in memory; `given.bytes` are taken by reading."""
    rest = max(_rest(memory, vertices), 0)
    chunk = min(8 * _MIB, rest // 40)
    row = 4 * (2 * shape.in_width + 2 * shape.sent) + 8
    chunk_rows, chunk_edges = max(16, chunk * 2 // 3 // row), max(64, chunk // 3 // 24)
    temporary = 4 * (2 * (shape.synopsis + shape.own) + 4 * shape.out) + 32
    update_rows = max(64, min(given.destinations, rest // 20 // temporary))
    used = given.bytes + IN_FLIGHT * chunk + 4 * chunk_rows * shape.message + update_rows * temporary
    used += min(MADE_AT_ONCE, chunk_edges) * shape.made
    if used + given.destinations * shape.held > rest:
        raise _too_little(memory, vertices, given.passes)
    total = CONTEXT_BYTES * vertices + used + given.destinations * shape.held
    slots, block_rows = given.destinations, given.block_rows
    return LayerMemory(given.passes, slots, slots, chunk_rows, chunk_edges, block_rows, update_rows, total)


def held_passes(memory: int, vertices: int, shape: LayerColumns, least: int) -> int:
    """The fewest passes, from `least` on, whose destinations all fit in memory.

    Raises: BudgetError where no number of passes does.
    """
    most = max(least, _PASSES_MAX)
    found = passes_without_cold_store(memory, vertices, shape, None, most, least)
    if not found:
        raise _too_little(memory, vertices, most)
    return found


def block_rows_bytes(width: int, rows: int) -> int:
    """Bytes of a block while it is read and put in order."""
    return rows * (4 * width + 12)


def passes_without_cold_store(
    memory: int, vertices: int, shape: LayerColumns, block_rows: int | None, most: int, least: int = 1
) -> int:
    """The fewest passes, from `least` on, in which every destination has a slot; 0 if `most` are not enough.

    `block_rows` None: as `output_block_rows`.
    """
    for passes in range(least, most + 1):
        rows = block_rows or output_block_rows(memory, vertices, shape, passes)
        try:
            if not layer_memory(memory, vertices, shape, passes, rows, next_use=False).needs_cold_store:
                return passes
        except BudgetError:
            continue
    return 0


def least_memory(vertices: int, shapes: list[LayerColumns]) -> int:
    """The smallest budget, to a mebibyte, with which every layer can be done in some number of passes up to 16."""
    low, high = 1, 1 << 24
    while low < high:
        middle = (low + high) // 2
        if all(_fits(middle * _MIB, vertices, shape) for shape in shapes):
            high = middle
        else:
            low = middle + 1
    return low * _MIB


def _fits(memory: int, vertices: int, shape: LayerColumns) -> bool:
    try:
        if shape.held:
            held_passes(memory, vertices, shape, 1)
        else:
            layer_memory(memory, vertices, shape, 1, output_block_rows(memory, vertices, shape, 1), next_use=False)
    except BudgetError:
        return False
    return True


def sorted_bytes(record: int) -> int:
    """Bytes of an edge while it is sorted, by those of its record."""
    return _SORTED_EDGE_BYTES + 4 * (record - 16)


def bucket_edges(memory: int, vertices: int, record: int) -> int:
    """Edges that are sorted at a time; `record` bytes each on the disk."""
    return max(1 << 10, (memory - 40 * vertices) // (2 * sorted_bytes(record)))
