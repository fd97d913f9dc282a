"""One module per conv: what it sends, keeps and updates when its graph changes."""
