"""A plan for the runs of tests that do not ask how a run plans itself."""

from dataclasses import replace

from trjmcmc.run.plan import Plan
from trjmcmc.run.policy import Policy


def small_policy():
    """The default policy, with small maps, and pilot runs, fits and climbs of a second's work."""
    usual = Policy()
    survey = usual.fit.survey
    audit = replace(
        survey.audit,
        particles_in_all=6000,
        most_particles=400,
        moves=10,
        longest_seconds=10.0,
        scored_draws=1000,
        draws_per_model=10_000,
        tempering=replace(survey.audit.tempering, polish_rounds=1),
    )
    fit = replace(
        usual.fit,
        evaluations_a_training_draw=5,
        training=replace(usual.fit.training, steps=200, batch=256),
        survey=replace(survey, moves=10, mode_draws=500, audit=audit),
    )
    return replace(
        usual,
        fit=fit,
        maps=replace(usual.maps, layers=4, hidden=(16,), layers_in_laplace=2),
    )


def small_plan():
    """The default plan of rounds, with smaller populations and shorter searches."""
    return Plan(particles=1600, moves=6, climbs=2000)
