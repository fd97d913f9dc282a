"""Quality of scores: F1, beside the average precision of job/training/judge.py."""

from __future__ import annotations

import numpy as np

from freshet.job.training.judge import precision_and_recall


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the score from which on accounts are taken for the best F1."""
    precision, recall = precision_and_recall(scores, labels)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return float(np.unique(scores)[::-1][f1.argmax()])


def f1_at(scores: np.ndarray, labels: np.ndarray, threshold: float) -> float:
    """F1 of the accounts with this score or more."""
    taken = scores >= threshold
    right = float(labels[taken].sum())
    return 2 * right / max(1.0, float(taken.sum() + labels.sum()))
