"""The FAPS paper's tables and figures: rounds of communication of SSI, LocalPower and FAPS, with our krylov beside them.

How rounds are counted
    A solver is given the scaled KKT violation that its counterpart ended with in the paper, and rounds are counted until the true
    one, measured with the pooled scatter, is no larger.  A one-shot start counts as a round, the set-up does not.  Nor do the
    rounds by which all but krylov have their answer confirmed in the end: they are ours, and no rounds of the paper's methods.
    Solvers that the paper does not have are given FAPS' target.
How the paper was read
    SSI is ``subspace``; LocalPower is ``localpower`` with q = 8 halved every round (``patience=1``), as Section 5.3 says; FAPS is
    ``faps``, once with its default one-shot start and once with the paper's random one.  ``literal=True`` is the text's own rule.

References
    L. Wang, X. Liu, Y. Zhang, "Seeking consensus on subspaces in federated principal component analysis".
"""
