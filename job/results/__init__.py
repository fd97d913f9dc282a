"""Results of a run: checked, compared, exported."""
