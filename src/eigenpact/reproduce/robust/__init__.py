"""The robust PCA paper's figures and table: DCF-PCA and CF-PCA, APGM and inexact ALM, with our shrinking thresholds beside them.

How it is measured
    relL is ||L - L_0||_F / ||L_0||_F over all sites, and what counts.  The paper's err (30) is printed beside it: it is squared
    and divided by ||L_0||^2 + ||S_0||^2, and since ||S_0|| is many times ||L_0||, an err of 1e-9 still allows 1e-3 in L.
    Curves over rounds show, for federated solvers, how far L_0 is from the span of the basis after each round; the L_i themselves
    stay at the sites.
How the paper was read
    Problems are those of Section 4.1, split evenly.  The paper does not print lambda, rho or most step sizes; DCF-PCA runs with
    the settings of ``ep.solvers.DCF``, which are the same for all problems.  CF-PCA is DCF-PCA with one site.

References
    W. Chu, "Distributed robust principal component analysis".
"""
