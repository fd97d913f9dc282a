"""A run from its options to its closing line, on either runtime."""
