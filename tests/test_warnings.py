"""Every warning points at the user's line, wherever in the package it is issued."""

import warnings

import torch

from trjmcmc.errors import ConvergenceWarning, warn_user


def test_a_warning_skips_decorators_of_torch_and_context_managers():
    @torch.no_grad()
    def deep():
        warn_user("doubtful", ConvergenceWarning)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        deep()
    assert said[0].filename == __file__
