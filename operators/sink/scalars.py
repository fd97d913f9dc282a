"""The rows of the Sink's durable table `scalars`, int64."""

from __future__ import annotations

NUMBER, ROWS, EVENTS, REJECTED, EPOCH, VERTICES, STREAMED_MS, _, GROUP, GROUP_ROWS = range(10)
