"""Modules of torch that run what a model folder declares, with gradients."""
