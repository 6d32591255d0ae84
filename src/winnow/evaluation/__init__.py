"""Evaluation: the returns of policies in an environment, for single runs and for whole protocols.

The protocol of the published results: 10 rounds at the end of training, 1000 updates apart, each with 20 episodes of
the policy's mean action. A run's score is the mean over all of these episodes. Earlier rounds, further apart, give the
learning curve.
"""

from __future__ import annotations

from winnow.evaluation.play import evaluate
from winnow.evaluation.records import Round
from winnow.evaluation.settings import Evaluation

__all__ = ["Evaluation", "Round", "evaluate"]
