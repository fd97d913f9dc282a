"""Feeds of a server from other servers, and its answers to those that feed from it."""
