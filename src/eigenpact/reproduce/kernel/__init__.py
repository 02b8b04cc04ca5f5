"""The figures of the paper on kernel PCA by projection consensus: similarity of nodes' directions with the central one.

How similarity is measured
    The cosine, in feature space, between a node's direction and the first one of central kernel PCA of all rows, both centred at
    the mean of all rows; the mean over nodes, its sign ignored.
How the paper was read
    Images are scaled to [-1, 1], K(x, y) = exp(-||x - y||^2 / 784), nodes stand on a ring and talk to the nearest ones.  Our rule
    for rho, stopping rule, start and centring are used, and beside them the paper's: its rho and block centring in Figure 3, its
    random start in Figure 5, all of them together ("as printed") in both.

References
    F. He, R. Yang, L. Shi, X. Huang, "A decentralized framework for kernel PCA with projection consensus constraints".
"""
