"""Layout and small files of the output folder."""
