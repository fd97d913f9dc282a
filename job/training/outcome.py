"""The folder of a trained model: report.json, a plot of the training, and the model where it is better."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from freshet.extras import MissingExtraError, need
from freshet.files.json_file import write_json
from freshet.gnn.model import ANSWERS_FILE, SPEC_FILE, WEIGHTS_FILE
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder.layout import LOCK
from freshet.job.training.fit import Pass

REPORT, PLOT, WORK = "report.json", "training.png", ".training"
_ROUNDING = 1e-12


class Report(NamedTuple):
    """Outcome of a round. old, new: the metric on the validation vertices, from 0 to 1."""

    metric: str
    old: float
    new: float
    margin: float
    taken: bool
    epoch: int  # of the graph
    positions: dict[str, int]
    model: str  # SHA-256 of the new model
    old_model: str
    vertices: int
    edges: int
    labels: dict[str, int]  # train, validation, skipped
    passes: int
    best_pass: int
    seconds: float


def is_better(old: float, new: float, margin: float) -> bool:
    """Return whether a metric is above another one by a margin; a margin of 0 takes no equal one, one below 0 does."""
    return new - old >= margin - _ROUNDING and (new > old or margin < 0)


def begin(folder: Path) -> Path:
    """Make the folder, and return one inside for the model on the way. What a killed training left is removed.

    Raises: UsageError for a folder that holds anything else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ours = (REPORT, PLOT, WORK, WEIGHTS_FILE, ANSWERS_FILE)
    if (folder / SPEC_FILE).exists():
        msg = f"--out {folder}: it holds a model already; give a new folder"
        raise UsageError(msg)
    if foreign := sorted({one.name for one in folder.iterdir()} - {*ours, LOCK}):
        msg = f"--out {folder}: it holds {foreign[0]}, which no training wrote; give a new folder"
        raise UsageError(msg)
    shutil.rmtree(folder / WORK, ignore_errors=True)
    for name in ours:
        (folder / name).unlink(missing_ok=True)
    return folder / WORK


def finish(folder: Path, report: Report, passes: Sequence[Pass]) -> None:
    """Write report and plot, then the model where it was taken; model.json comes last."""
    work = folder / WORK
    _draw(folder / PLOT, report, passes)
    write_json(folder / REPORT, report._asdict())
    if report.taken:
        for name in (ANSWERS_FILE, WEIGHTS_FILE, SPEC_FILE):
            if (work / name).exists():
                (work / name).replace(folder / name)
    shutil.rmtree(work, ignore_errors=True)


def _draw(path: Path, report: Report, passes: Sequence[Pass]) -> None:
    """Draw loss and metric by pass; without matplotlib a line says so."""
    try:
        need("plots", path.name)
    except MissingExtraError as error:
        say(f"no plot: {error}")
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), constrained_layout=True)
    left.plot(
        [one.number for one in passes if one.loss is not None], [one.loss for one in passes if one.loss is not None]
    )
    left.set(xlabel="pass", ylabel="loss", title="training vertices")
    right.plot([one.number for one in passes], [one.quality for one in passes], label="chooses the best pass")
    right.axhline(report.old, color="C7", linestyle="--", label=f"old, validation: {report.old:.4f}")
    right.axhline(report.new, color="C2", linestyle="--", label=f"new, validation: {report.new:.4f}")
    right.set(xlabel="pass", ylabel=report.metric.replace("_", " "), title="taken" if report.taken else "not taken")
    right.legend(loc="lower right", fontsize="small")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
