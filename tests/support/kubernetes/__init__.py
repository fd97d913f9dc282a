"""Published schemas of Kubernetes and of Flink's operator."""
