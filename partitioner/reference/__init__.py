"""Slow, obvious references of what events mean, which the tests and `freshet check` hold the partitioner against."""
