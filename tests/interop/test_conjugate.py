"""The conjugate pair through every front end: its log joint at points, and its answer."""

import time
from contextlib import suppress

import pytest
import torch

import trjmcmc as trj
from tests.interop.conjugate import agrees
from tests.interop.languages import NEEDED, PAIRS
from trjmcmc import clock
from trjmcmc.errors import TargetError

FRONT_ENDS = [k for k in PAIRS if k != "torch"]

WITHIN = 0.002  # of p(model) two standard errors, and

NATS = 0.005  # of an evidence one: what default runs reach


@pytest.fixture
def pair(request):
    """A function that gives both models; JAX's precision is put back afterwards."""
    jax, before = None, False
    with suppress(ImportError):
        import jax

        before = jax.config.jax_enable_x64
        whole = request.node.get_closest_marker("whole") is not None
        jax.config.update("jax_disable_most_optimizations", not whole)

    def models(name, **options):
        if name in NEEDED:
            pytest.importorskip(NEEDED[name])
        return PAIRS[name](**options)

    yield models
    if jax is not None:
        jax.config.update("jax_enable_x64", before)
        jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.whole
@pytest.mark.parametrize("name", FRONT_ENDS)
def test_the_log_joint_and_its_gradient_are_those_of_torch(pair, name):
    options = {"backend": "numpy"} if "pymc" in name else {}
    ours = trj.Target(pair(name, **options))
    native = trj.Target(pair("torch"))
    assert ours.dtype == torch.float64 and ours.dim == native.dim == 3
    code = torch.tensor([[0], [1]]).repeat(20, 1)
    theta = torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    theta = torch.where(native.space.active(code), theta, 0.0)
    found, expected = (t.log_joint_and_grad(code, theta) for t in (ours, native))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(ours.log_joint(code, theta), found[0], rtol=1e-10, atol=1e-10)

    # negative control: half of a nat is seen
    with pytest.raises(AssertionError):
        torch.testing.assert_close(found[0] + 0.5, expected[0], rtol=1e-8, atol=1e-8)


@pytest.mark.whole
@pytest.mark.planned
@pytest.mark.parametrize("name", FRONT_ENDS)
def test_default_runs_find_the_exact_answer(pair, name):
    """Right by errors that small: ``python -m benchmarks.interop_cost`` has the deviations."""
    with clock.read_from(time.process_time):  # the plan is not that of a busy machine
        sampler = trj.TRJSampler(trj.Target(pair(name)), seed=1)
        result = sampler.run(until={"probability": 0.4 * WITHIN}, progress=False)
    agrees(result)
    assert result.model_probabilities(full=True).loc["two", "combined_se"] < WITHIN / 2
    assert (result.evidence(full=True)["combined_se"] < NATS).all()


@pytest.mark.parametrize("name", [k for k in FRONT_ENDS if k not in {"Joint", "from_jax"}])
def test_a_model_where_its_name_belongs_is_refused_in_words(name):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    rest = [None, {}] if "stan" in name else []
    with pytest.raises(TargetError, match=rf"{name}: expected a name and then the model.*got"):
        getattr(trj if name in trj.__all__ else trj.interop, name)(print, *rest)
