"""What the machine has to give: Java, artifacts from Maven, ports, processes and signals."""
