"""What a result says aloud."""

import warnings


def said_by(result):
    """Messages by category."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result.warn()
    return {w.category: str(w.message) for w in found}
