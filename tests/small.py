"""Small plans for the runs of tests that do not ask how a run plans itself."""

from importlib import import_module

from trjmcmc.fit import trainer
from trjmcmc.pilot import audit, smc, survey
from trjmcmc.run import in_rounds, maps
from trjmcmc.run.plan import Plan

train = import_module("trjmcmc.fit.train")  # the room has its function by that name

SMALL = (
    (maps, "LAYERS", 4),
    (maps, "HIDDEN", (16,)),
    (maps, "LAYERS_IN_LAPLACE", 2),
    (audit, "PARTICLES", 6000),
    (audit, "MOST_PARTICLES", 400),
    (audit, "LONGEST_SECONDS", 10.0),
    (audit, "SCORED_DRAWS", 1000),
    (audit, "DRAWS_PER_MODEL", 10_000),
    (audit, "MOVES", 10),
    (survey, "MOVES", 10),
    (survey, "MODE_DRAWS", 500),
    (smc, "POLISH", 1),
    (train, "STEPS", 200),
    (train, "BATCH", 256),
    (trainer, "STEPS", 200),
    (trainer, "BATCH", 256),
    (trainer, "EVALUATIONS_A_DRAW", 5),
)
USUAL = tuple((module, name, getattr(module, name)) for module, name, _ in SMALL)


def small_plan():
    """The default plan of rounds, with smaller populations and shorter searches."""
    return Plan(particles=1600, moves=6, climbs=2000)


def plan_small(patch):
    """Runs and fits of a second's work, small maps."""
    patch.setattr(in_rounds, "Plan", small_plan)
    for module, name, value in SMALL:
        patch.setattr(module, name, value)


def plan_as_usual(patch):
    """As users have them."""
    patch.setattr(in_rounds, "Plan", Plan)
    for module, name, value in USUAL:
        patch.setattr(module, name, value)
