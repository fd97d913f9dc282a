"""The names that a module of written layers imports from freshet."""

from __future__ import annotations

from freshet.gnn.own.aggregates import MaxOf as Max
from freshet.gnn.own.aggregates import MeanOf as Mean
from freshet.gnn.own.aggregates import Redone
from freshet.gnn.own.aggregates import SoftmaxOf as Softmax
from freshet.gnn.own.aggregates import SumOf as Sum
from freshet.gnn.own.functions import linear, relu
from freshet.gnn.own.layer import WrittenLayer as Layer

__all__ = ["Layer", "Max", "Mean", "Redone", "Softmax", "Sum", "linear", "relu"]
