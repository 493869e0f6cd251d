"""What a result says aloud."""

import warnings

from trjmcmc.doubts.doubt import warn_of


def said_by(result):
    """Messages by category."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of(result.doubts)
    return {w.category: str(w.message) for w in found}
