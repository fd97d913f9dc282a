"""The picture of scripts/bench/parts.py: what parts and processes reach and cost, by the size of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.plots.picture import pyplot

_FIGURES = {"events_per_s": "events/s", "cpu_us_per_event": "processor time an event, us"}
_MARKERS, _STYLES = "osD^vX", ("-", "--", ":", "-.")


def plot(found: Mapping[Any, Mapping[str, float]], path: Path, dpi: int = 110) -> None:
    """Two diagrams for each graph with a line for each shape; `found` has figures by `bench.parts.Mixture`."""
    plt = pyplot()
    graphs, epochs, numbers = (_distinct(found, name) for name in ("graph", "epoch", "parts"))
    processes = list(dict.fromkeys((mixture.processes, mixture.pipeline) for mixture in found))
    colours = plt.get_cmap("tab10")
    figure, axes = plt.subplots(len(graphs), 2, figsize=(14, 4.5 * len(graphs)), layout="constrained", squeeze=False)
    for row, graph in zip(axes, graphs, strict=True):
        for axis, (name, label) in zip(row, _FIGURES.items(), strict=True):
            for shape in _distinct(found, "shape"):
                points = {m: one[name] for m, one in found.items() if (m.graph, m.shape) == (graph, shape)}
                for first in list(points)[:1]:
                    axis.plot(
                        [epochs.index(mixture.epoch) for mixture in points],
                        list(points.values()),
                        color=colours(processes.index((first.processes, first.pipeline)) % colours.N),
                        marker=_MARKERS[numbers.index(first.parts) % len(_MARKERS)],
                        linestyle=_STYLES[numbers.index(first.parts) % len(_STYLES)],
                        label=shape,
                    )
            axis.set(title=graph, ylabel=label, xlabel="events of an epoch", yscale="log")
            axis.set_xticks(range(len(epochs)), epochs)
            axis.grid(alpha=0.3, which="both")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)


def _distinct(found: Mapping[Any, Any], name: str) -> list[Any]:
    return list(dict.fromkeys(getattr(mixture, name) for mixture in found))
