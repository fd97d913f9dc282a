"""Plans of models with kinds: what vertices of each kind send, and what they make of their relations."""
