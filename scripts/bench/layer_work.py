"""Work of each conv of an engine in an epoch, compared with a recomputation of the k-hop neighbourhood.

The recomputation reads every in-edge of each vertex that a change may reach, conv by conv, as the baseline of the
RIPPLE++ paper and InkStream's k-hop do. Of those vertices some are *pruned*: nothing reaches them, or what does changes
nothing; some are moved *by delta*; and some are *redone* from their in-edges. This is counted beside the job, and never
in a run whose time is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table

from freshet.operators.aggregates import edge_networks, gates
from freshet.operators.aggregates.attention import kernels as attention_kernels
from freshet.operators.aggregates.attention.fold import AttentionFold
from freshet.operators.aggregates.edge_networks import NetworkFold
from freshet.operators.aggregates.extrema import kernels as extrema_kernels
from freshet.operators.aggregates.extrema.extrema import ExtremaFold
from freshet.operators.aggregates.fold import Fold
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.aggregates.gates import GatedFold
from freshet.operators.aggregates.products import ProductFold
from freshet.operators.graph.edge_messages import Edges
from freshet.operators.graph.sources import NO_SOURCES, SourceRows
from freshet.operators.storage.layer import LayerStorage
from freshet.state.codec import Block

_COUNTED = {
    ExtremaFold: (extrema_kernels, ("compared", "held", "exposed", "exposed_rows", "reread", "values")),
    AttentionFold: (attention_kernels, ("deltas", "flipped", "scanned", "afresh", "reread")),
    GatedFold: (gates, ("deltas", "afresh", "reread")),
    NetworkFold: (edge_networks, ("made", "afresh", "reread")),
}
_VALUE_BYTES = 4
DELETIONS = "reread_per_deletion", "reread_per_deletion_of_its_end", "reread_per_lost_channel"


def _stores_of(layer: LayerStorage) -> list[Any]:
    """Return the stores of a layer, one for each relation."""
    return [one.store for one in layer.relations]


def folds_of(layer: LayerStorage) -> Sequence[Fold]:
    """The folds of a layer; none where a SumStore keeps it."""
    return [fold for store in _stores_of(layer) for fold in _folds_in(store)]


def _folds_in(store: Any) -> Sequence[Fold]:
    if not isinstance(store, FoldStore):
        return ()
    return store.fold.folds if isinstance(store.fold, ProductFold) else (store.fold,)


def counts_of(layer: LayerStorage) -> dict[str, int]:
    """Return the counters of a layer's folds since it was made."""
    found: dict[str, int] = {}
    for fold in folds_of(layer):
        if not isinstance(fold, ExtremaFold | AttentionFold | GatedFold | NetworkFold):
            continue
        module, names = next(counted for kind, counted in _COUNTED.items() if isinstance(fold, kind))
        for name in names:
            found[name] = found.get(name, 0) + int(fold.counts[getattr(module, name.upper())])
    return found


@dataclass
class Work:
    """One conv's work; vertices, messages and bytes of the values that they have."""

    khop: int = 0  # vertices that the recomputation makes anew
    changed: int = 0  # whose synopsis has changed here
    redone: int = 0  # of them, from their in-edges
    reread: int = 0  # in-edges of those
    lost: int = 0  # channels whose extremum nobody holds any more
    reread_by_deletion: int = 0  # in-edges read anew of rows that lost an in-edge in the same epoch
    messages: int = 0  # that came, went or changed, and those read anew
    bytes: int = 0
    khop_messages: int = 0
    khop_bytes: int = 0

    def told(self, events: int) -> dict[str, float]:
        """Shares and figures an event, for people."""
        khop, redone = max(1, self.khop), min(self.redone, self.changed)
        shares = {
            "pruned": 1 - self.changed / khop,
            "by_delta": (self.changed - redone) / khop,
            "redone": redone / khop,
            "messages_of_recomputation": self.messages / max(1, self.khop_messages),
            "bytes_of_recomputation": self.bytes / max(1, self.khop_bytes),
        }
        return shares | {f"{name}_per_event": value / events for name, value in asdict(self).items()}


class Watch:
    """Counts the work of the layers of one part, from now on."""

    def __init__(self, layers: list[LayerStorage]) -> None:
        self.works = [Work() for _ in layers]
        self._reached = [np.empty(0, np.int64) for _ in layers]  # in the epoch that a layer is at
        self._epochs = [0 for _ in layers]
        self._layers = layers
        for number, layer in enumerate(layers):
            for store in _stores_of(layer):
                self._wrap(number, layer, store)

    def end(self) -> None:
        """Count no more."""
        for number, layer in enumerate(self._layers):
            self._close(number)
            for store in _stores_of(layer):
                del store.merge  # the instance's: the class has the real one
            for fold in _extrema_of(layer):
                del fold.settle

    def _wrap(self, number: int, layer: LayerStorage, store: Any) -> None:
        merge, lost = store.merge, np.empty(0, np.int32)
        for fold in [one for one in _folds_in(store) if isinstance(one, ExtremaFold)]:
            fold.settle = self._settling(number, fold, lambda: lost)  # type: ignore[method-assign]

        def counting(
            epoch: int, topology: Block, sources: SourceRows, own: Any, targets: SourceRows = NO_SOURCES, *update: Any
        ) -> None:
            nonlocal lost
            lost = topology.get("del_dst")
            if self._epochs[number] != epoch:
                self._close(number)
                self._epochs[number] = epoch
            moved = _moved(store, sources)
            before, recomputed = counts_of(layer), getattr(store, "recomputed", 0)
            merge(epoch, topology, sources, own, targets, *update)
            counts = {name: value - before[name] for name, value in counts_of(layer).items()}
            summed_again = getattr(store, "recomputed", 0) - recomputed
            counts["afresh"] = counts.get("afresh", 0) + summed_again
            self._count(number, store, topology, moved, counts)

        store.merge = counting

    def _settling(self, number: int, fold: ExtremaFold, lost: Callable[[], np.ndarray]) -> Callable[..., np.ndarray]:
        """Count the work of a fold at the end of an epoch, and before it the in-edges that it will read."""
        settle = fold.settle

        def counting(edges: Edges, serial: int) -> np.ndarray:
            exposed = fold.worn(edges)
            read = edges.inn.head.data[exposed[np.isin(exposed, lost())], 1]
            self.works[number].reread_by_deletion += int(read.sum())
            return settle(edges, serial)

        return counting

    def _close(self, number: int) -> None:
        """Count what a recomputation would have read in the epoch that a layer was at."""
        reached, work = self._reached[number], self.works[number]
        work.khop += reached.size
        for store in _stores_of(self._layers[number]) if reached.size else ():
            in_edges = int(store.in_edges(reached).sum())
            work.khop_messages += in_edges
            work.khop_bytes += in_edges * _row_bytes(store)
        self._reached[number] = np.empty(0, np.int64)

    def _count(self, number: int, synopses: Any, topology: Block, moved: np.ndarray, counts: dict[str, int]) -> None:
        """Count what an epoch has done."""
        work, row_bytes = self.works[number], _row_bytes(synopses)
        ends = np.concatenate([topology.get("del_dst"), topology.get("add_dst")])
        before = moved if number == 0 else self._reached[number - 1]
        some = [self._reached[number], before, ends, _out_of(synopses, before)]
        self._reached[number] = np.unique(np.concatenate(some).astype(np.int64))
        work.changed += int(synopses.touched().size)
        work.redone += counts.get("exposed_rows", 0) + counts["afresh"]
        reread = counts.get("reread", 0)
        work.reread += reread
        work.lost += counts.get("exposed", 0)
        kept = int(_out_of(synopses, moved).size)
        work.messages += kept + ends.size + reread
        # a kept message is read as it was and as it is; of extrema that are read anew, the exposed channels alone
        read = _VALUE_BYTES * counts["values"] if "values" in counts else reread * row_bytes
        work.bytes += (2 * kept + ends.size) * row_bytes + read + _VALUE_BYTES * counts.get("scanned", 0)


def _row_bytes(synopses: Any) -> int:
    return int(_VALUE_BYTES * synopses.z.data.shape[1])


def _extrema_of(layer: LayerStorage) -> list[ExtremaFold]:
    return [fold for fold in folds_of(layer) if isinstance(fold, ExtremaFold)]


def _moved(synopses: Any, sources: SourceRows) -> np.ndarray:
    """The sources whose values change in any bit."""
    old = synopses.z.data
    new = sources.rows[sources.places, : old.shape[1]]
    return sources.slots[(old[sources.slots].view(np.int32) != new.view(np.int32)).any(axis=1)]


def _out_of(synopses: Any, slots: np.ndarray) -> np.ndarray:
    """The destinations of all out-edges of these vertices, one part's."""
    lists = synopses.lists.out
    return np.concatenate([np.empty(0, np.int32), *(lists.of(slot) for slot in slots.tolist())])


def works_table(results: list[dict[str, Any]], size: int) -> Table:
    """Return the table of each conv's work beside a recomputation of the k-hop neighbourhood, for people.

    The last three columns are from a run of deletions alone: in-edges reread for each deleted edge, with the changes in
    the conv before; those of them that belong to the vertex at its end; and in-edges reread for each channel that lost
    its last holder.
    """
    table = Table(title=f"shares of the k-hop neighbourhood, by conv, at {size:,} events an epoch; figures an event")
    names = "layer", "conv", "k-hop", "pruned", "by delta", "redone", "re-read", "messages", "of k-hop's", "KiB"
    for column in (*names, "of k-hop's", "re-read a deletion", "of its end", "a lost channel"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for one in results:
        for i, work in enumerate(one["convs"]):
            shares = [f"{work[name]:.1%}" for name in ("pruned", "by_delta", "redone")]
            per = {name: work[f"{name}_per_event"] for name in ("khop", "reread", "messages", "bytes")}
            cells = [one["layer"] if i == 0 else "", str(i + 1), f"{per['khop']:.1f}", *shares, f"{per['reread']:.1f}"]
            cells += [f"{per['messages']:.1f}", f"{work['messages_of_recomputation']:.1%}"]
            table.add_row(
                *cells,
                f"{per['bytes'] / 1024:.1f}",
                f"{work['bytes_of_recomputation']:.1%}",
                *(f"{one[name][i]:.1f}" for name in DELETIONS),
            )
    return table
