"""What people look at beside rows: the status of the job, its last hour, rejected records."""
