"""Helpers of the tests of training."""
