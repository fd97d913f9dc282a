"""Keyed graph state: tables with dirty pages, adjacency lists, the sweeps that make them durable, and the backends."""
