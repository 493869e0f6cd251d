"""A plan for the runs of tests that do not ask how a run plans itself."""

from dataclasses import replace

from trjmcmc.run.policy import Policy


def small_policy():
    """The default policy, with pilot runs, audits and climbs of a few seconds' work made small."""
    usual = Policy()
    survey = usual.fit.survey
    audit = replace(
        survey.audit,
        particles_in_all=6000,
        most_particles=400,
        moves=15,
        longest_seconds=20.0,
        scored_draws=1000,
        draws_per_model=10_000,
    )
    fit = replace(
        usual.fit,
        evaluations_a_training_draw=5,
        training=replace(usual.fit.training, steps=200),
        survey=replace(survey, mode_draws=500, audit=audit),
    )
    screening = replace(usual.screening, least_seconds=0.02, most_seconds=0.1, least_draws=200)
    chains = replace(usual.chains, of_given_draws=128, of_open_length=256)
    segments = replace(usual.segments, most_seconds=1.5)
    return replace(usual, fit=fit, screening=screening, chains=chains, segments=segments)
