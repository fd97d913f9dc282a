"""What the process that watches a job on Flink does for it: cuts that go, and a status from metrics."""
