"""The robust PCA paper's figures and table: DCF-PCA, CF-PCA, APGM and both ALMs, with our shrinking thresholds beside them.

How it is measured
    relL is ||L - L_0||_F / ||L_0||_F over all sites, and what counts.  The paper's err (30) is printed beside it: it is squared
    and divided by ||L_0||^2 + ||S_0||^2, and since ||S_0|| is many times ||L_0||, an err of 1e-9 still allows 1e-3 in L.
    Curves show for all methods how far L_0 is from the span of the r leading components: over rounds for federated solvers, whose
    L_i stay at the sites, and over iterations for those with all rows in one place.
How the paper was read
    Problems are those of Section 4.1, split evenly.  The paper prints K and steps for Figures 2 and 4, but neither lambda nor
    rho.  "Step as printed" has its steps for rows as they are, with lambda = rho = 1; "dcf" has the settings of
    ``ep.solvers.DCF``, which are the same for all problems.  CF-PCA is DCF-PCA with one site.

References
    W. Chu, "Distributed robust principal component analysis".
"""
