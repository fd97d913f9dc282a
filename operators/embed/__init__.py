"""Embeds a whole graph out of core: sources are read once, in order, and broadcast to their destinations (ATLAS)."""
