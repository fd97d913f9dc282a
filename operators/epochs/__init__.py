"""The Partitioner's stage and what it keeps: waiting events, cuts, journal and intervals."""
