"""Metrics by which rows are near to each other, and turns of those who read a whole table."""

from __future__ import annotations

import os
import threading

# The first three by their numbers in state/served/near_kernels.py; the last by a function that scores pairs.
COSINE, DOT, EUCLIDEAN, LINK = METRICS = ("cosine", "dot", "euclidean", "link")
# Each read takes a processor for some milliseconds; half of them are left to lookups and to those who fill tables.
turns = threading.BoundedSemaphore(max(1, (os.cpu_count() or 1) // 2))
