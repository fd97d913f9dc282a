"""The Cora citation graph as tests/data/cora keeps it: one small file, read without torch.

2,708 papers, 5,278 citations between them (taken as undirected), 1,433 words of which a paper has some, and seven
subjects. `known` says which 80% of the papers the demo's snapshot holds; the others arrive in its stream.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "data" / "cora"
SPLITS = ("none", "train", "val", "test")
WORDS = 1433


@dataclass(frozen=True)
class Cora:
    """The graph; papers are numbered 0..n-1.

    Shapes: edges (e, 2), each edge once, the smaller number first; words (k,) column numbers, those of paper i from
    offsets[i] to offsets[i + 1]; label, split (number in SPLITS), known (n,)
    """

    edges: np.ndarray
    words: np.ndarray
    offsets: np.ndarray
    label: np.ndarray
    split: np.ndarray
    known: np.ndarray

    def __len__(self) -> int:
        return len(self.label)

    def words_of(self, paper: int) -> np.ndarray:
        """The columns in which the paper's features are 1."""
        return self.words[self.offsets[paper] : self.offsets[paper + 1]].astype(np.int64)

    def features(self) -> np.ndarray:
        """All features, (n, WORDS) float32 of 0 and 1."""
        x = np.zeros((len(self), WORDS), np.float32)
        x[np.repeat(np.arange(len(self)), np.diff(self.offsets)), self.words] = 1
        return x

    def in_split(self, name: str) -> np.ndarray:
        """Return which papers are in the split, (n,) bool."""
        return self.split == SPLITS.index(name)

    def known_edges(self) -> np.ndarray:
        """The snapshot's edges: those between known papers."""
        return self.edges[self.known[self.edges].all(axis=1)]


def load(folder: Path = FOLDER) -> Cora:
    """Read the graph; numbers come back as int64."""
    with np.load(folder / "graph.npz") as file:
        columns = {field.name: file[field.name] for field in fields(Cora)}
    return Cora(**{name: column.astype(bool if name == "known" else np.int64) for name, column in columns.items()})


def save(graph: Cora, folder: Path = FOLDER) -> None:
    """Write the graph in the narrowest types."""
    folder.mkdir(parents=True, exist_ok=True)
    narrow = {"edges": np.uint16, "words": np.uint16, "offsets": np.uint16, "known": np.bool_}
    columns = {field.name: getattr(graph, field.name) for field in fields(Cora)}
    np.savez_compressed(
        folder / "graph.npz", **{name: column.astype(narrow.get(name, np.uint8)) for name, column in columns.items()}
    )
