"""Paths of the HTTP server: a module each, with an `add(routes)` that `http_server.py` lists."""
