"""How maps are trained, and what a fit spends where; what chose each number.

What no measurement chose says what it trades off.
"""

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
        warming_share: Share of the steps in which the learning rate rises: Adam's first steps
            rest on few gradients.
        cooling_share: Share of the steps in which it falls to nothing: the noise of the last
            steps stays in the map.
        reported_share: Share of draws or steps without a finite gradient that is worth a warning.
    """

    steps: int = 2000
    batch: int = 512
    window_steps: int = 50
    warming_share: float = 0.05
    cooling_share: float = 0.3
    reported_share: float = 0.01


@dataclass(frozen=True)
class CoveringPolicy(Checked):
    """The divergence that a map is trained by on given draws.

    Attributes:
        order: Its order where the draws' log joints are known. 1.5 in place of 1 raised the
            importance ESS of factor analysis from 72 to 79 and from 10 to 15 percent, and the
            held-out share that is covered of coal mining, k = 6, from .64 to .84.
        full_share_draws: Effective draws from which a model has its full share of a batch: of
            fewer, a map learns each by heart.
        most_validation_draws: Held-out draws that validate each window: time against the
            noise that hides a plateau.
    """

    order: float = 1.5
    full_share_draws: float = 1000.0
    most_validation_draws: int = 4096


@dataclass(frozen=True)
class LocatingPolicy(Checked):
    """The first guess of where posteriors lie, where there are no draws yet.

    Attributes:
        draws_per_model: Draws of an iteration, half of them mirror images.
        iterations: Steps of all models: steps double where they fall short, so that a posterior
            thousands of units away takes tens of them.
    """

    draws_per_model: int = 64
    iterations: int = 150


@dataclass(frozen=True)
class TrainerPolicy(Checked):
    """What a fit spends on its audit, on training and on scoring the map.

    Attributes:
        tried_share: Share of the steps of each of three trainings by variational inference, from
            standard units and from where models were located twice, the best of which goes on. On
            the factor models 100 of 2000 steps tell: bounds of .3 and 1.6 nats below the evidence
            after these end at .27 and 1.55.
        fewest_tried: Steps of these at least.
        tried_budget: Share of the time and of the evaluations of a fit that they may take: with
            less they are left out.
        standardised_models: Models of a large space whose coordinates are located before training.
        locating_share: Evaluations for that, over those of the training.
        fewest_located: Models located at least.
        evaluations_a_training_draw: Evaluations up to which an audit may grow, for each training
            draw: a cheap likelihood then takes the time of the training.
        audit_share: Share of a limit on evaluations for the audit; the rest of a fit's goes to
            importance sampling.
        audit_time: Share of the time of a limited fit for its audit.
        training_time: Share of what is left after that for training; the rest scores the map.
        fewest_training_draws: Distinct draws a model below which location and scale are all that
            is learnt from them: a flow would fit each draw.
        most_mends: Times that a map is trained again because the audit finds it short.
        training: How training runs go.
        covering: By which divergence a map is trained on draws.
        locating: How posteriors are located without draws.
        survey: How pilot runs are sized.
    """

    tried_share: float = 0.05
    fewest_tried: int = 100
    tried_budget: float = 0.25
    standardised_models: int = 256
    locating_share: float = 0.5
    fewest_located: int = 4
    evaluations_a_training_draw: int = 20
    audit_share: float = 0.45
    audit_time: float = 0.4
    training_time: float = 0.8
    fewest_training_draws: int = 200
    most_mends: int = 2
    training: TrainingPolicy = TrainingPolicy()
    covering: CoveringPolicy = CoveringPolicy()
    locating: LocatingPolicy = LocatingPolicy()
    survey: SurveyPolicy = SurveyPolicy()
