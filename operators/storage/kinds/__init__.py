"""Storages and Tails where vertices have kinds: rows of each kind, lists and synopses of each relation."""
