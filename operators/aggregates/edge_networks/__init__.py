"""Messages that a network makes of both ends of an edge, and the synopses of them."""
