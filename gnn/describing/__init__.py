"""Words and figures of a described model that models with kinds and without share, and those with kinds alone."""
