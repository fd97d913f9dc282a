"""Maxima and minima, with the number of their holders."""
