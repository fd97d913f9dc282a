"""Upper bounds of models, for modules that must not wait until the declarations of all layers are loaded."""

from __future__ import annotations

# Each conv is two operators on Flink, with network buffers of their own (job/flink/options.py). More were not tried.
MAX_CONVS = 64
