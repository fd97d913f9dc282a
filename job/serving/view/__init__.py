"""Views of the job for people: its status, its last hour, rejected records."""
