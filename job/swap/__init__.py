"""Swaps of a service's model: the steps from one job to the next, each recorded."""
