"""What speaks against an answer: one kind of doubt, and the checks that find them.

Each check is a function of what it looks at, and has the words of what it finds. What the warnings
of a kind say around them stands in :data:`~trjmcmc.doubts.doubt.KINDS`. A test provokes each text:

====================================== =========================== ===============================
words                                  check                       test
====================================== =========================== ===============================
"chains drift", the rule of a run      of_chains.of_rule           doubts/test_doubt.py
R-hat 1.34                             of_chains.by_rhat           result/test_doubts.py
R-hat 1.34 of a tail of x              of_chains.of_tails          result/test_doubts.py
runs differ in x                       of_chains.of_runs           result/test_merge.py
no estimate of the probability of 'b'  of_chains.of_visits         result/test_doubts.py
no draw of 'b' has a finite likelihood of_chains.of_visits         run/test_limits.py
'b' (drifts by +0.1 in half the run)   of_chains.of_shares         result/test_item_alarms.py
until was not reached                  of_chains.of_length         doubts/test_doubt.py
a pilot run rests on 5.0 prior draws   of_maps.of_pilot            result/test_doubts.py
halves of the pilot run differ         of_maps.of_pilot            result/test_doubts.py
the map covers 80.0% of the posterior  of_maps.of_coverage         result/test_doubts.py
the audit has another evidence         of_maps.of_coverage         doubts/test_doubt.py
routes to the evidences disagree       of_maps.of_routes           posthoc/test_evidence.py
rounding changes log densities         of_numbers.of_rounding      run/test_precision.py
rounding decides                       of_numbers.of_resolution    run/test_precision.py
reweighting leaves few draws           of_numbers.of_reweighting   posthoc/test_evidence.py
points far out in the tail             of_numbers.of_overflows     doubts/test_doubt.py
a count has run into its limit         of_search.of_limits         result/test_catalogue.py
no search for lost modes               of_search.of_modes          pilot/test_few_calls.py
few searches for modes                 of_search.of_modes          doubts/test_doubt.py
optimisations found what q lacks       of_search.of_climbs         approximate/test_population.py
models that q(m) hardly draws          of_search.of_neighbours     approximate/test_population.py
q covers 80% of tempered draws         of_answers.of_audit         approximate/test_variational.py
no density, or Pareto k, of weights    of_answers.of_weights       approximate/test_variational.py
the bound is far below the evidence    of_answers.of_bound         doubts/test_doubt.py
probabilities under q and by weights   of_answers.of_probabilities approximate/test_variational.py
further out in the tails               of_answers.of_reach         approximate/test_reach.py
standard deviations are short          of_answers.of_spread        approximate/test_reach.py
means and deviations by weights        of_answers.of_moments       approximate/test_reach.py
q(m) draws a model too seldom          of_answers.of_counts        approximate/test_population.py
a training was taken back              of_answers.of_fallback      doubts/test_doubt.py
====================================== =========================== ===============================
"""
