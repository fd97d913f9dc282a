"""Quality of scores: average precision and F1."""

from __future__ import annotations

import numpy as np


def _by_score(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Precision and recall where the best scores up to each of them are taken; equal scores are taken together."""
    order = np.argsort(-scores, kind="stable")
    descending = scores[order]  # differences of infinities would be NaN
    ends = np.flatnonzero(np.append(descending[1:] != descending[:-1], True))
    right = np.cumsum(labels[order])[ends]
    return right / (ends + 1), right / max(1, labels.sum())


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """The mean of precision over recall, as scikit-learn has it."""
    precision, recall = _by_score(scores, labels)
    return float((precision * np.diff(recall, prepend=0)).sum())


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the score from which on accounts are taken for the best F1."""
    precision, recall = _by_score(scores, labels)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return float(np.unique(scores)[::-1][f1.argmax()])


def f1_at(scores: np.ndarray, labels: np.ndarray, threshold: float) -> float:
    """F1 of the accounts with this score or more."""
    taken = scores >= threshold
    right = float(labels[taken].sum())
    return 2 * right / max(1.0, float(taken.sum() + labels.sum()))
