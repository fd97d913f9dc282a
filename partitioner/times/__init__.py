"""Times that events say: which are too far ahead, and which edges have had theirs."""
