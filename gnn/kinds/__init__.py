"""Models with kinds of vertices and relations between them: what model.json of version 2 declares."""
