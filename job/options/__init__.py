"""What a user can say: options of the command line, the --config file, and their checks."""
