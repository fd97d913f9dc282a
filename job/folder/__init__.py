"""What lies where in the output folder."""
