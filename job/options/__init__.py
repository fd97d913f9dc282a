"""Options of the user: command line, --config file, and their checks."""
