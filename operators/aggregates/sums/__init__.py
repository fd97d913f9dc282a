"""Sums and means, alone or beside other synopses of the same messages."""
