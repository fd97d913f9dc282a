"""The Flink shells: they move bytes, timers and state between Flink and the stages."""
