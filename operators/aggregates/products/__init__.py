"""Several synopses of the same messages, side by side."""
