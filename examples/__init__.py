"""Layers of one's own: `freshet run --layers examples.gated_sum`, and so on."""
