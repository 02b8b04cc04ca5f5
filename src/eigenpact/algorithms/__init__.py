"""One file = one method.  Nothing here reads a file, prints, or knows an engine.

A symbol means the same in all files, also where a paper has another letter for it; the file says so then.

======== =========================================================================================================
d, k     features; components wanted (r1 global and r2 local ones in ``personalized``)
X_i, Y_i rows of site i as it holds them (n_i x d); centred and scaled.  X_i is a site's own copy of Z in FAPS
C, C_i   scatter of all rows, of one site's: sum and terms of Y_i^T Y_i (d x d).  S_i = C_i / n_i in ``personalized``
Z        the orthonormal basis (d x k) that all sites agree on, or that one has found so far; C Z is known as CZ or G
U        its part that is common to sites with a part of their own, or common to rows with errors; m the centre beside it
V, V_i   what belongs to one site alone: its directions (d x any), or the scores of its rows (n_i x k)
Q, B     a space that grows, and the block that it grows by; CQ and CB their products with C
Omega    a random block (d x b), which proves that no direction was missed
Theta, T values on the diagonal; a small symmetric matrix of products, such as Q^T C Q
G, R     a product or gradient that sites add up (d x k); a residual
M, M_i   what sites send to be added up (d x k); rows read a block at a time in ``robust``
W        which entries are trusted (n x d), in ``robust``
A        any matrix of a function that knows no sites
K, alpha kernel matrix of a node's rows and coefficients in terms of them, in ``graph``
======== =========================================================================================================
"""
