"""Upper bounds of inputs and outputs on which several modules must agree."""

from __future__ import annotations

ID_BYTES_MAX = 1024  # of UTF-8, of a string id and of an edge type's name, unless a job says otherwise
RECORD_BYTES = 1 << 20  # what Kafka's producers and brokers take by default
RECORD_SPARE = 512  # of which headers and the frame of a batch take less
TAIL_BYTES = 256 << 20  # of a part's tail files, by default
