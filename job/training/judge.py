"""Quality of logits on labelled vertices: accuracy, or average precision."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from freshet.job.errors import UsageError

MetricName: TypeAlias = Literal["accuracy", "average_precision"]
METRICS: tuple[MetricName, ...] = ("accuracy", "average_precision")


def metric_for(width: int, asked: str | None) -> MetricName:
    """Return the metric of logits of a width: the one asked for, else average precision for one logit, else accuracy.

    Raises: UsageError for a metric that does not exist, or does not fit.
    """
    if asked is None:
        return "average_precision" if width == 1 else "accuracy"
    found: MetricName | None = next((name for name in METRICS if name == asked.replace("-", "_")), None)
    if found is None:
        msg = f"--metric {asked}: expected one of {', '.join(METRICS)}"
        raise UsageError(msg)
    if found == "average_precision" and width > 2:
        msg = f"--metric {asked}: it is for two classes, but the model has {width} logits; use accuracy"
        raise UsageError(msg)
    return found


def quality(metric: MetricName, logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the quality of logits, from 0 to 1.

    Shapes: logits (n, width) float32, labels (n,) int64.
    """
    if metric == "average_precision":
        scores = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        return average_precision(scores, labels)
    classes = logits[:, 0] > 0 if logits.shape[1] == 1 else logits.argmax(axis=1)
    return float(np.mean(classes == labels))


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean of precision over recall, as scikit-learn defines it; equal scores count together.

    Shapes: scores (n,) float, labels (n,) 0 or 1.
    """
    precision, recall = precision_and_recall(scores, labels)
    return float((precision * np.diff(recall, prepend=0)).sum())


def precision_and_recall(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return precision and recall of the vertices with at least a score, for each distinct score, descending."""
    order = np.argsort(-scores, kind="stable")
    descending = scores[order]  # differences of infinities would be NaN
    ends = np.flatnonzero(np.append(descending[1:] != descending[:-1], True))
    right = np.cumsum(labels[order])[ends]
    return right / (ends + 1), right / max(1, labels.sum())
