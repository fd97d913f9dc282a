"""Metrics of logits, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.job.errors import UsageError
from freshet.job.training.judge import average_precision, metric_for, quality
from freshet.job.training.outcome import is_better


def by_definition(scores: np.ndarray, labels: np.ndarray) -> float:
    """The sum over thresholds of precision times the step in recall."""
    total, before = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        taken = scores >= threshold
        recall = labels[taken].sum() / labels.sum()
        total += labels[taken].mean() * (recall - before)
        before = recall
    return total


@pytest.mark.parametrize("seed", range(5))
def test_average_precision(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, labels = rng.integers(0, 6, 40) / 2, rng.integers(0, 2, 40)  # with equal scores
    assert average_precision(scores, labels) == pytest.approx(by_definition(scores, labels))
    assert quality("average_precision", scores[:, None], labels) == average_precision(scores, labels)
    two = np.stack([np.full(40, 1.5), scores + 1.5], axis=1)
    assert quality("average_precision", two, labels) == pytest.approx(average_precision(scores, labels))


def test_accuracy() -> None:
    assert quality("accuracy", np.array([[0.1, 2, 1], [3, 2, 1], [0, 0, 1]]), np.array([1, 1, 2])) == pytest.approx(
        2 / 3
    )
    assert quality("accuracy", np.array([[0.1], [-0.1], [2.0]]), np.array([1, 1, 1])) == pytest.approx(2 / 3)


def test_the_metric_follows_the_width() -> None:
    assert [metric_for(width, None) for width in (1, 2, 5)] == ["average_precision", "accuracy", "accuracy"]
    assert metric_for(2, "average-precision") == "average_precision"
    with pytest.raises(UsageError, match="5 logits"):
        metric_for(5, "average-precision")
    with pytest.raises(UsageError, match="expected one of accuracy, average_precision"):
        metric_for(5, "f1")


@pytest.mark.parametrize(
    ("old", "new", "margin", "taken"),
    [
        (0.5, 0.51, 0.01, True),
        (0.7, 0.8, 0.1, True),  # in float64 their difference is below 0.1
        (0.5, 0.509, 0.01, False),
        (0.5, 0.5, 0.0, False),
        (0.5, 0.5000001, 0.0, True),
        (0.5, 0.45, -0.1, True),
        (0.5, 0.3, -0.1, False),
    ],
)
def test_a_model_is_taken_by_the_margin(old: float, new: float, margin: float, taken: bool) -> None:
    assert is_better(old, new, margin) == taken
