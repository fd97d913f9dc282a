"""Clients of a served table: over Arrow Flight, or directly from shared memory."""
