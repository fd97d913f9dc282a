"""What a run left behind: checked, compared, exported."""
