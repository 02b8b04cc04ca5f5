"""The one-shot paper's Figure 1 and Table 1: errors of one round beside the centralized one, and rounds of all that take more.

How errors are measured
    The error of a unit vector w is 1 - (w^T v_1)^2, with v_1 of the population, as in the paper.  The centralized estimator is
    the leading eigenvector of all rows' scatter.  Rows are not centred, because the paper's are not.
How Figure 1 is computed
    Every estimator is a solver of this package.  All of them see rows through scatters only, so a site with more rows than
    features holds as many as features, with the same scatter (``population.py``).  A merge sees of a site only its leading
    direction: rows are asked for it in one run, and the other merges run on sites that hold it as their single row.
How Table 1 was read
    It gives orders of growth without constants.  Shown are rounds on the same rows: until the error is within a hundredth of the
    centralized one, until w is the pooled eigenvector to 1 - (w^T v)^2 <= 1e-8, and until the solver stopped by its own rule.
    Only the last counts the rounds by which power and shift-invert have their answer confirmed, which the paper's have not.

References
    D. Garber, O. Shamir, N. Srebro, "Communication-efficient algorithms for distributed stochastic principal component
    analysis", ICML 2017.
"""
