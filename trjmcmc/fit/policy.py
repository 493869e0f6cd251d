"""How long maps are trained, and what a fit spends where; what chose each number."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import Checked
from ..pilot.policy import SurveyPolicy


@dataclass(frozen=True)
class TrainingPolicy(Checked):
    """One training run of a map by stochastic gradients.

    Attributes:
        steps: Most steps; a plateau ends it earlier.
        batch: Draws a step, over all models.
        window_steps: Steps that the objective is averaged over: a longer window sees smaller
            improvements and finds a plateau later.
    """

    steps: int = 2000
    batch: int = 512
    window_steps: int = 50


@dataclass(frozen=True)
class TrainerPolicy(Checked):
    """What a fit spends on its audit and on training.

    Attributes:
        evaluations_a_training_draw: Evaluations up to which an audit may grow, for each training
            draw: a cheap likelihood then takes the time of the training.
        most_mends: Times that a map is trained again because the audit finds it short.
        training: How training runs go.
        survey: How pilot runs are sized.
    """

    evaluations_a_training_draw: int = 20
    most_mends: int = 2
    training: TrainingPolicy = TrainingPolicy()
    survey: SurveyPolicy = SurveyPolicy()
