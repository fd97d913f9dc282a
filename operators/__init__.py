"""The operators of the dataflow: engine-free cores, and the thin Flink shells around them (flink/)."""
