"""What JAX says where it can't trace a function, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

SAID: Mapping[str, tuple[str, str]] = {  # by the name of the exception: what is done; a remedy
    "TracerBoolConversionError": ("branches on {}", "use jnp.where"),
    "ConcretizationTypeError": (
        "needs {} while JAX traces it",
        "use jnp.where, and shapes that are fixed",
    ),
    "TracerArrayConversionError": ("hands {} to NumPy", "use jax.numpy"),
    "TracerIntegerConversionError": ("takes an index from {}", "use jnp.take"),
}

BRANCHES = ("TracerBoolConversionError", "ConcretizationTypeError")


def tracing_failure(error: Exception, what: str) -> tuple[str, str] | None:
    """What a function does that can't be traced, and the remedy; None of other errors.

    Arguments:
        error: That JAX raised.
        what: What the function does it with, in words.

    Example:
        >>> class TracerArrayConversionError(Exception):
        ...     "As JAX has it."
        >>> tracing_failure(TracerArrayConversionError(), "a parameter")
        ('hands a parameter to NumPy', 'use jax.numpy')
    """
    found = SAID.get(type(error).__name__)
    return None if found is None else (found[0].format(what), found[1])
