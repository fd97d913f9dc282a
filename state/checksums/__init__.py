"""Checksums of durable state: of the entries of keyed state, and of whole files."""
