"""The personalized PCA paper's tables and figures, computed again.

Synthetic data: convergence, statistical errors, ranks, clusters, the lower bound.  Real data (Tables 4 to 7): pictures, writing,
video and text.

How the paper was read
    PerPCA is ``perpca``, the paper's Algorithm 2, wherever the paper shows PerPCA: from the mean covariance or at random, as the
    paper says, after rounds that a remark names.  Beside it stands ``varpro``, ours, which finds the optimum of (7) itself; the
    paper's numbers are compared with ``perpca``'s.  Choice 2 has long steps (Figure 9, Tables 4 to 7), as the paper says it may.
    distPCA is the paper's variant with local deflation.  Rows are not centred.
    Pictures and frames are sites: a site's rows are the picture's rows or columns of pixels.  Ranks that the paper does not tell
    (Table 5) are 50 global and 5 local.  The paper's FEMNIST has 3550 writers and its CIFAR-10 60000 pictures; here are 105
    and 10000.
What is measured
    Subspace error (30): ||P_U - P||_F^2 + 1/N sum_i ||P_Vi - P_i||_F^2 to the directions that made the data.  Reconstruction
    error (29): mean over sites of the mean squared length of what [U, V_i] misses.

References
    N. Shi, R. A. Kontar, "Personalized PCA: decoupling shared and unique features".
"""
