"""The synopsis of each aggregate: what it keeps of its messages, and how it is read."""
