"""Status of a job, as data and as a page (`freshet status`)."""
