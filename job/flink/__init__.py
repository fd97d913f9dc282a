"""The job on Flink: dataflow, options, client, checkpoints."""
