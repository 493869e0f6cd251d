"""What the documentation promises: the limits by which answers are judged, each once.

A change to one of them is a change to what users were told. Limits of algorithms, and budgets of
time, stand where they are used.
"""

MODELS_ONE_BY_ONE = 64  # models of a space up to which each is audited, watched and counted itself

RHAT_CONVERGED = 1.05
"""Split R-hat up to which chains count as having forgotten their start: 20 autocorrelation times.

Source: Vehtari et al. (2021), https://doi.org/10.1214/20-BA1221, advise 1.01 for a final answer.
"""

DONE_ERROR = 0.01  # standard error of a probability at which a run without draws or limit is done

DONE_SECONDS = 600.0  # of wall time after which it ends in any case

PARETO_K_FINITE_VARIANCE = 0.5
"""Pareto shape up to which importance weights have a variance, and so a standard error.

Source: Vehtari et al. (2024), https://www.jmlr.org/papers/v25/19-556.html
"""

PARETO_K_RELIABLE = 0.7
"""Pareto shape beyond which importance weights are not averaged with any number of draws.

Source: Vehtari et al. (2024), https://www.jmlr.org/papers/v25/19-556.html
"""

LOG_EVIDENCES_AGREE = 0.1  # nats up to which two log evidences of one model count as the same

POSTERIOR_COVERED = 0.95  # share of a posterior that a map must cover

RHAT_FLAGGED = 1.1  # R-hat above which draws that no run has judged are flagged

RHAT_NO_ERROR = 1.2
"""R-hat above which no error is given: five autocorrelation times tell little of their mean."""

ROUNDING_ERROR = 0.03  # nats of rounding error in a log density that begin to matter
