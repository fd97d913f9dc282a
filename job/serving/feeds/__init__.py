"""How a server feeds from other servers, and what it tells those that feed from it."""
