"""Resources of the machine: Java, artifacts from Maven, ports, processes and signals."""
