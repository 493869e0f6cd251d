"""Mixtures as functions in NumPy: their truths, and one run."""

import math

import torch

from benchmarks.few_calls import instance, run


def test_the_truth_is_the_one_by_draws_of_the_prior():
    for number in range(3):
        target, p = instance(number)
        generator = torch.Generator().manual_seed(number)
        log_mean = []
        for code in target.space.enumerate():
            codes = code.expand(20_000, -1)
            theta = target.sample_prior(codes, generator)
            log_l = target.log_prior_and_likelihood(codes, theta)[1].double()
            relative = (log_l - log_l.max()).exp()
            log_mean.append((log_l.max() + relative.mean().log(), relative.std() / relative.mean()))
        (a, sd_a), (b, sd_b) = log_mean
        error = math.hypot(sd_a, sd_b) / math.sqrt(20_000)
        assert abs(float(a - b) - math.log(p / (1 - p))) < 5 * error


def test_a_run_says_how_it_stands():
    found = run(4, 2000)
    assert found["calls"] <= 2000 and found["right"] + found["said"] + found["silent"] == 1
    assert found["right"] and abs(found["z"]) < 5
