"""What tests of models in JAX share: its global settings, and how often it compiles."""

import jax
import jax.monitoring
import pytest

_COMPILED = []


def _listen(event, duration, **about):
    if event.endswith("backend_compile_duration"):
        _COMPILED.append(about.get("fun_name", ""))


jax.monitoring.register_event_duration_secs_listener(_listen)


def compiled():
    """Names of all that JAX has compiled so far."""
    return list(_COMPILED)


@pytest.fixture
def float64():
    """JAX in float64, and back to what it was."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(autouse=True)
def compiled_quickly(request):
    """Most of these tests' time is the compiler's; those of whole runs have it optimise."""
    whole = request.node.get_closest_marker("whole") is not None
    jax.config.update("jax_disable_most_optimizations", not whole)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
