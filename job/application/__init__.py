"""`freshet spec`: a job as a Flink application on Kubernetes."""
