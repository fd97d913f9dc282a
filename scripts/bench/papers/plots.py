"""Draws the figures of the papers' scripts in one picture: `python scripts/bench/papers/plots.py FOLDER PICTURE`.

FOLDER has for each script a file NAME.json with what it printed, of which the last line is read; a script without a
file has no panel. Lines and bars are Freshet's, dashed grey lines the papers' own figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from scripts.bench.papers import d3_gnn
from scripts.bench.papers.beside import a_second
from scripts.plots.picture import picture, pyplot

Figures = dict[str, Any]
_GREY = {"color": "#808080", "linestyle": "--", "linewidth": 1}
_THEIRS_K = (9.4, 56)  # RIPPLE++ on arxiv, from the slowest model to the fastest


def ripple_pp(axis: Any, found: Figures) -> None:
    """Updates in a second of the processor by batch size."""
    for model, one in found["graphs"]["arxiv"].items():
        sizes = sorted(map(int, one["freshet"]))
        axis.plot(sizes, [a_second(one["freshet"][str(k)]) / 1e3 for k in sizes], marker="o", label=model)
    for value in _THEIRS_K:
        axis.axhline(value, **_GREY)
    axis.set(title="RIPPLE++: arxiv", xlabel="updates a batch", ylabel="thousand updates/s", xscale="log", yscale="log")


def inkstream(axis: Any, found: Figures) -> None:
    """Time of a recomputation over Freshet's, by changed edges."""
    for model, one in found["graphs"]["pubmed"].items():
        sizes = sorted(map(int, one["freshet"]))
        ratios = [a_second(one["freshet"][str(k)]) / a_second(one["recompute"][str(k)]) for k in sizes]
        axis.plot(sizes, ratios, marker="o", label=model)
    axis.axhline(1, **_GREY)
    axis.set(title="InkStream: PubMed", xlabel="changed edges", ylabel="times a recomputation", xscale="log")


def neutronrt(axis: Any, found: Figures) -> None:
    """Messages made, of those of a recomputation, by model."""
    models = list(found["models"])
    bars = axis.barh(models[::-1], [100 * found["models"][name]["messages"] for name in models[::-1]])
    axis.bar_label(bars, fmt="%.2g%%", padding=2)
    axis.set(title="NeutronRT: arxiv", xlabel="messages, % of a recomputation's", xscale="log")


def d3(axis: Any, found: Figures) -> None:
    """Edges a second by edges an epoch, and the paper's by machines."""
    for parallelism in sorted({one["parallelism"] for one in found["runs"]}):
        runs = sorted(
            (one["window"], one["events_per_s"]) for one in found["runs"] if one["parallelism"] == parallelism
        )
        axis.plot(*zip(*runs, strict=True), marker="o", label=f"{parallelism} processes")
    for _, windowed in d3_gnn.PUBLISHED.values():
        axis.axhline(windowed, **_GREY)
    axis.set(title="D3-GNN: sx-superuser", xlabel="edges an epoch", ylabel="edges/s", xscale="log", yscale="log")


def atlas(axis: Any, found: Figures) -> None:
    """Bytes read by budget, and of rows read as they come."""
    for model in dict.fromkeys(one["model"] for one in found["runs"]):
        runs = [one for one in found["runs"] if one["model"] == model]
        axis.plot([one["memory"] for one in runs], [one["read"] / 1e9 for one in runs], marker="o", label=model)
    axis.axhline(found["runs"][0]["as_they_come"] / 1e9, **_GREY)
    axis.set(title="ATLAS: a full pass", xlabel="memory", ylabel="GB read", yscale="log")


PANELS: dict[str, Callable[[Any, Figures], None]] = {
    "ripple_pp": ripple_pp, "inkstream": inkstream, "neutronrt": neutronrt, "d3_gnn": d3, "atlas": atlas,
}  # fmt: skip


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("picture", type=picture)
    asked = parser.parse_args()
    there = {name: asked.folder / f"{name}.json" for name in PANELS if (asked.folder / f"{name}.json").is_file()}
    if not there:
        sys.exit(f"{asked.folder}: expected files such as ripple_pp.json; none is there")
    figure, axes = pyplot().subplots(1, len(there), figsize=(4 * len(there), 3.6), layout="constrained", squeeze=False)
    for axis, (name, path) in zip(axes[0], there.items(), strict=True):
        PANELS[name](axis, orjson.loads(path.read_bytes().splitlines()[-1]))
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7, frameon=False)
    figure.savefig(asked.picture, dpi=120)


if __name__ == "__main__":
    main()
