"""Passes that hold all their destinations: layers whose synopses are no sums, which no row can be taken out of."""
