"""The benchmark of devices: its figures are of the right size, and the picture is drawn."""

import sys

import pytest
import torch

import trjmcmc as trj
from tests.places import ROOT

sys.path.insert(0, str(ROOT))  # benchmarks are not installed
from benchmarks import device as benchmark

CPU = torch.device("cpu")


def test_traffic_counts_what_operations_read_and_write():
    x = torch.ones(1000)
    with benchmark.Traffic() as traffic:
        x + x.view(10, 100).view(1000)
    assert (traffic.operations, traffic.bytes) == (1, 3 * 4000)


def test_figures_and_their_picture(tmp_path):
    target = trj.problems.robust_regression()
    kernel = benchmark.jumps(target)
    row = benchmark.figure(target, kernel, 4, 1e9, 0.0)
    assert row["chains"] == 4 and row["chain_steps_per_s"] >= row["worst_chain_steps_per_s"] > 0
    assert row["operations"] > 50 and 0 < row["share_of_bandwidth"] < 1
    trace = benchmark.traced(target, kernel, 4, 1)
    assert trace["operations_per_step"] > row["operations"]
    about = {"figure": "throughput", "device": "CPU", "problem": "robust regression"}
    benchmark.picture([about | row, about | row | {"chains": 8}], tmp_path / "device.png")
    assert (tmp_path / "device.png").stat().st_size > 10_000


def test_a_network_of_two_layers_has_more_weights():
    target = benchmark.deep_regression()
    theta = 0.1 * torch.ones(2, target.dim)
    log_joint = target.log_joint(torch.tensor([[0], [1]]), theta)
    assert target.dim > 1000 and bool(log_joint.isfinite().all())


@pytest.mark.whole
def test_the_contracts_hold_on_the_cpu():
    assert all(holds for _, holds, _ in benchmark.contracts(CPU))
