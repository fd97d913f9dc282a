"""The jobs and their commands: dataflow graphs, the two runtimes, configuration, command line."""
