"""`freshet size`: memory and disk that a job will need."""
