"""Evaluation: the returns that policies earn in an environment, of single runs and of whole protocols.

The protocol of the published results: 20 episodes of the mean action in each of the last 10 rounds, 1000 updates apart,
and a run's score is the mean over all of them. Earlier rounds, further apart, draw the curve.
"""

from __future__ import annotations

from winnow.evaluation.play import evaluate
from winnow.evaluation.records import Round
from winnow.evaluation.settings import Evaluation

__all__ = ["Evaluation", "Round", "evaluate"]
