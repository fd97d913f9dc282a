"""The streaming graph partitioner: validated events in, an epoch's net change by part out."""
