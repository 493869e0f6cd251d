"""From a target to a result: choices, warm-up, the loop, and when it stops.

:class:`~trjmcmc.run.sampler.TRJSampler` is what users see. A run is a
:class:`~trjmcmc.run.runner.Runner`, which goes through these stages:

- fit, where it is asked for: ``knowledge`` (what is known of a target), by a ``strategy``;
- choice of the kernel: ``start``, ``choose`` or ``choose_components``, which measure moves of
  ``moves`` on a ``bench`` in ``segment``s and train while it pays, by ``decide``;
- warm-up: burn-in as long as ``decide.burn_in`` says, then evidences by ``weighing``;
- ``screening``: climbs of prior draws, which find modes that map and chains have lost;
- sampling: ``loop``, until ``stop`` gives a verdict; perhaps back to training;
- the result: ``report``, in time by ``budget``.

The numbers that decide stand in ``policy``.
"""
