"""How a module's forward becomes steps: traced, opened down to layers, and brought into a line."""
