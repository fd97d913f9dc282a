"""How programs read a served table: over Arrow Flight, or straight from shared memory."""
