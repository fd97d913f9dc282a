"""A new job, step by step: its model and graph, its sources and outputs, its settings, its folder, its base image."""
