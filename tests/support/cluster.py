"""A Flink cluster of several processes for a test."""

from __future__ import annotations

from job.local_cluster import LocalCluster as Cluster

__all__ = ["Cluster"]
