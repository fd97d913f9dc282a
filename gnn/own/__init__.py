"""Layers that users write: their base class, their aggregates, and where their code is found."""
