"""A command that is given again: to a job that runs, has ended, or goes on."""
