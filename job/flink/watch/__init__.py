"""Work of the process that watches a job on Flink: it trims the cut log, and makes a status from metrics."""
