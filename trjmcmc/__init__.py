"""Transdimensional Bayesian inference with transport maps."""
from .space import Counts, LogWeights, ModelList, Space, Subsets
from .target import Model, Target, Truth
