"""Runs in rounds without a sampler."""

from trjmcmc.run.rounds import looks


def rounds(recipe, *, error=0.01, said=None):
    """Sample until standard errors are small enough and chains have mixed; the last look."""
    for run in looks(recipe):
        run.judge(error)
        if said is not None:
            said(run)
        if run.done or run.steps >= recipe.plan.most or run.recipe.late:
            break
    return run
