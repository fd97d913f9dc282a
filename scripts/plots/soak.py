"""The picture of a soak: each of its figures over the time that it simulates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.plots.picture import pyplot


def plot_figures(at: Sequence[float], figures: Sequence[Mapping[str, float]], label: str, path: Path, dpi: int) -> None:
    """A small picture for each figure, whose names are those of all samples together; `at` is where samples stand."""
    plt = pyplot()
    names = sorted({name for one in figures for name in one})
    rows = -(-len(names) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(12, 2.4 * rows), layout="constrained", squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        axis.plot(at, [one.get(name, 0) for one in figures], ".-")
        axis.set(title=name.replace("_", " "), ylim=(0, None))
    for axis in axes[-1]:
        axis.set_xlabel(label)
    figure.savefig(path, dpi=dpi)
