"""A recomputation of the affected neighbourhood for layers that the peers lack: GIN, and layers that read attributes.

It is the peers' (recompute.py in their folder), with lists of edges in place of lists of neighbours: numpy, with
torch's segment sums of the messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from freshet.gnn.model import Model

Weights = dict[str, np.ndarray]


class Recomputed:
    """Two layers of one kind, `gin`, `gine` or `gat`, over a workload whose edges may have attributes."""

    def __init__(self, workload: Any, adjacency: Any, model: Model, kind: str) -> None:
        w, number = workload, np.arange(workload.m0)
        self.w, self.kind, self.touched = w, kind, 0
        self.out, self.inn = (adjacency(end[: w.m0], number, w.n) for end in (w.src, w.dst))
        self.weights: list[Weights] = []
        for layer in (0, 2):
            at = f"layers.{layer}."
            self.weights.append({k.removeprefix(at): v for k, v in model.weights.items() if k.startswith(at)})
        self.h = [w.x0.copy()]
        self.z: list[np.ndarray] = []
        everywhere = np.arange(w.n)
        for layer in (0, 1):
            self.z.append(self._sent(layer, everywhere))
            self.h.append(np.zeros((w.n, len(self._bias(layer))), np.float32))
            for part in np.array_split(everywhere, 16):
                self._layer(layer, part)

    def _bias(self, layer: int) -> np.ndarray:
        return next(value for name, value in reversed(self.weights[layer].items()) if name.endswith("bias"))

    def batch(self, first: int, end: int) -> None:
        """Apply these events, and recompute every row that they may reach."""
        w = self.w
        op, number = w.op[first:end], w.arg[first:end]
        for kind, edge in zip(op.tolist(), number.tolist(), strict=True):
            if kind == 0:
                self.out.add(w.src[edge], edge)
                self.inn.add(w.dst[edge], edge)
            elif kind == 1:
                self.out.remove(w.src[edge], edge)
                self.inn.remove(w.dst[edge], edge)
        rows = op == 2
        changed, last = np.unique(w.a[first:end][rows][::-1], return_index=True)
        self.h[0][changed] = w.pool[w.b[first:end][rows][::-1][last]]
        ends = np.unique(w.dst[number[~rows]])
        for layer in (0, 1):
            self.z[layer][changed] = self._sent(layer, changed)
            changed = np.unique(np.concatenate([changed, ends, w.dst[self.out.lists(changed)[0]]]))
            self._layer(layer, changed)
            self.touched += changed.size

    def _sent(self, layer: int, rows: np.ndarray) -> np.ndarray:
        """The rows that these vertices send: transformed for attention, else as they are."""
        x = self.h[layer][rows]
        return x @ self.weights[layer]["lin.weight"].T if self.kind == "gat" else x

    def _layer(self, layer: int, rows: np.ndarray) -> None:
        edges, counts = self.inn.lists(rows)
        make = self._attention if self.kind == "gat" else self._sums
        made = make(self.weights[layer], self.z[layer], rows, edges, counts)
        self.h[layer + 1][rows] = np.maximum(made, 0) if layer == 0 else made

    def _sums(
        self, weights: Weights, z: np.ndarray, rows: np.ndarray, edges: np.ndarray, counts: np.ndarray
    ) -> np.ndarray:
        messages = z[self.w.src[edges]]
        if self.kind == "gine":
            terms = self.w.attr[edges] @ weights["lin.weight"].T
            messages = np.maximum(messages + terms + weights["lin.bias"], 0)
        total = z[rows] + segment_sums(messages, counts)
        hidden = np.maximum(total @ weights["nn.0.weight"].T + weights["nn.0.bias"], 0)
        return hidden @ weights["nn.2.weight"].T + weights["nn.2.bias"]

    def _attention(
        self, weights: Weights, z: np.ndarray, rows: np.ndarray, edges: np.ndarray, counts: np.ndarray
    ) -> np.ndarray:
        w, src = self.w, self.w.src[edges]
        own = z[rows]
        source, target = (weights[f"att_{end}"].reshape(-1) for end in ("src", "dst"))
        sent = z[src]
        scores, loops = sent @ source, own @ source
        if w.attr is not None:
            term = weights["lin_edge.weight"].T @ weights["att_edge"].reshape(-1)
            of_edges = w.attr[edges] @ term
            mean = segment_sums(of_edges[:, None], counts)[:, 0] / np.maximum(counts, 1)
            scores, loops = scores + of_edges, loops + mean
        targets = own @ target
        shares, own_share = (_exp_leaky(s + t) for s, t in ((scores, np.repeat(targets, counts)), (loops, targets)))
        whole = segment_sums(shares[:, None], counts)[:, 0] + own_share
        found = segment_sums(sent, counts, shares) + own_share[:, None] * own
        return found / whole[:, None] + weights["bias"]


def _exp_leaky(logits: np.ndarray) -> np.ndarray:
    return np.exp(np.where(logits > 0, logits, np.float32(0.2) * logits)).astype(np.float32)


def segment_sums(rows: np.ndarray, counts: np.ndarray, shares: np.ndarray | None = None) -> np.ndarray:
    """Return the sums of consecutive rows, of `counts` each, times their shares."""
    ends = torch.zeros(len(counts) + 1, dtype=torch.int64)
    torch.cumsum(torch.from_numpy(np.asarray(counts, np.int64)), 0, out=ends[1:])
    ones = torch.ones(len(rows)) if shares is None else torch.from_numpy(shares)
    of_rows = torch.sparse_csr_tensor(ends, torch.arange(len(rows)), ones, size=(len(counts), len(rows)))
    return torch.sparse.mm(of_rows, torch.from_numpy(np.ascontiguousarray(rows, np.float32))).numpy()
