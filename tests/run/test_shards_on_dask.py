"""Shards on a cluster of Dask's, with a worker that is killed while they sample."""

import logging
import os
import signal
import warnings

import pytest

from tests.run.test_shards import PoolWarning, few_together, run, same  # noqa: F401
from trjmcmc.run import tasks

distributed = pytest.importorskip("distributed")
PATIENT = {
    "distributed.deploy.lost-worker-timeout": "600s",  # importing torch takes its time
    "distributed.comm.timeouts.connect": "120s",
    "distributed.scheduler.allowed-failures": 100,
}


@pytest.fixture(scope="module")
def cluster():
    import dask

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), dask.config.set(PATIENT):
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as found:
            yield found


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")
def test_a_worker_is_killed_and_the_bits_are_the_same(cluster):
    with distributed.Client(cluster) as client:
        pids = list(client.run(os.getpid).values())

        def rule(draws):
            if len(pids) == 2:
                os.kill(pids.pop(), signal.SIGKILL)
            return False

        found = run(draws=600, executor=client, until=rule)
        assert len(pids) == 1
    assert same(run(draws=600), found)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_cluster_without_workers_says_so_and_keeps_the_time(monkeypatch):
    """Workers may come later: a queue, an adaptive cluster."""
    monkeypatch.setattr(tasks, "LONELY", 1.0)
    monkeypatch.setattr(tasks, "ASKED", 0.3)
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        distributed.Client(cluster) as client,
        pytest.warns(PoolWarning, match="no workers for 1 s"),
    ):
        assert run(executor=client, draws=None, max_seconds=8.0).report.out_of_time
