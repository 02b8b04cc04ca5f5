"""What somebody who sees one site's single replies can work out: the site's scatter matrix C_i = Y_i^T Y_i (d x d).

Who attacks
    Whoever sees the replies of one site by themselves: the coordinator when sums are not secured, or anybody who reads its memory
    or unencrypted connections; and where only sums are seen, the coordinator together with all other sites, who take their own
    replies off the sum.  Nobody departs from the protocol; to listen is enough.

Known and wanted
    The blocks B = [Z^(1), Z^(2), ...] (d x m) that were sent to all sites, and the site's replies.  In subspace iteration and
    block Krylov, and in LocalPower once q = 1, the replies side by side are C_i B: a linear system for C_i.  FAPS sends
    something else, but its first reply with X_i = Z shows products too (:func:`first_message`).

References
    L. Wang, X. Liu, Y. Zhang, "Seeking consensus on subspaces in federated principal component analysis", Section 1.2,
    Propositions 2 and 5; equation numbers are theirs.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from ..errors import InputError
from ..numerics.linalg import Array, symmetrize

NOISE = 30.0
"""A direction is used where its length and its product are more than so many rounding errors."""


def minimum_norm(blocks: Array, products: Array) -> Array:
    """The smallest matrix Phi (d x d) with Phi B = G: the paper's attack.

    Phi = G B^+, with B^+ the pseudo-inverse of the blocks.  Once B (d x m) has rank d this is Proposition 2's formula
    G B^T (B B^T)^-1, and Phi = C_i up to rounding; before, Phi = C_i Q Q^T with Q an orthonormal basis of the blocks.

    Parameters
    ----------
    blocks : (d, m) array
        B, all blocks sent, side by side; they may repeat themselves.
    products : (d, m) array
        G = C_i B, one site's replies, side by side.

    Returns
    -------
    (d, d) array, in general not symmetric.

    >>> C = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> B = np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    >>> bool(np.allclose(minimum_norm(B, C @ B), C))
    True
    >>> minimum_norm(B[:, :1], C @ B[:, :1])
    array([[2., 0.],
           [1., 0.]])
    """
    Q, CQ = basis_and_product(blocks, products)
    Phi: Array = CQ @ Q.T
    return Phi


def symmetric(blocks: Array, products: Array) -> Array:
    """The smallest symmetric matrix Phi (d x d) with Phi B = G: the attacker also knows that C_i is symmetric.

    With Q an orthonormal basis of the blocks and C_i Q from the products, Phi = C_i Q Q^T + Q (C_i Q)^T - Q Q^T C_i Q Q^T.
    Missing is (I - Q Q^T) C_i (I - Q Q^T), where :func:`minimum_norm` misses all of C_i (I - Q Q^T): this attack is never worse,
    and far better once Q holds the leading directions.

    >>> C = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> symmetric(np.eye(2)[:, :1], C[:, :1])
    array([[2., 1.],
           [1., 0.]])
    """
    Q, CQ = basis_and_product(blocks, products)
    rest = CQ - Q @ (Q.T @ CQ)
    return Q @ symmetrize(Q.T @ CQ) @ Q.T + rest @ Q.T + Q @ rest.T


def first_message(Z: Array, M: Array) -> tuple[float, Array]:
    """What FAPS' first reply says: the site's penalty beta_i and its product (I - Z Z^T) C_i Z (d x k).

    FAPS begins with X_i = Z.  Then Z spans an invariant subspace of the site's H_i, so subspace iterations that begin there
    (``inner="subspace"``, the default) leave X_i spanning the same, and (20) reads M_i = beta_i Z + (I - Z Z^T) C_i Z.  The two
    parts are orthogonal: beta_i = tr(Z^T M_i) / k.

    Parameters
    ----------
    Z : (d, k) array
        The first basis that was sent.
    M : (d, k) array
        The site's reply to it, the paper's Y_i.

    >>> Z, C = np.eye(3)[:, :1], np.array([[5.0, 2.0, 1.0], [2.0, 4.0, 0.0], [1.0, 0.0, 3.0]])
    >>> beta, product = first_message(Z, 0.7 * Z + (np.eye(3) - Z @ Z.T) @ C @ Z)
    >>> beta, product.ravel().tolist()
    (0.7, [0.0, 2.0, 1.0])
    """
    Z, M = _checked(Z, M)
    inside = Z.T @ M
    return float(np.trace(inside)) / Z.shape[1], M - Z @ inside


def basis_and_product(blocks: Array, products: Array) -> tuple[Array, Array]:
    """An orthonormal basis Q (d x r) of the blocks and C Q, by a singular value decomposition B = Q S V^T: C Q = G V S^-1.

    Blocks of an iteration that converges are nearly dependent.  A column of G V is known to about eps times the longest column of
    G, so that a direction whose product is no larger would add noise over s_j: it is left out.
    """
    B, G = _checked(blocks, products)
    Q, lengths, Vt = scipy.linalg.svd(B, full_matrices=False, check_finite=False)
    GV = G @ Vt.T
    tells = (lengths > _noise(B)) & (np.linalg.norm(GV, axis=0) > _noise(G))
    return Q[:, tells], GV[:, tells] / lengths[tells]


def _noise(A: Array) -> float:
    """What rounding may make of a unit combination of A's columns that should vanish."""
    return NOISE * float(np.finfo(float).eps) * float(np.linalg.norm(A, axis=0).max(initial=0.0))


def _checked(blocks: Array, products: Array) -> tuple[Array, Array]:
    B, G = np.asarray(blocks, dtype=np.float64), np.asarray(products, dtype=np.float64)
    if B.ndim != 2 or B.shape != G.shape:
        raise InputError(
            f"blocks of shape {B.shape} and products of shape {G.shape} must both be (n_features, columns): put the blocks sent "
            "side by side, and the site's replies in the same order"
        )
    if not (np.isfinite(B).all() and np.isfinite(G).all()):
        raise InputError("blocks and products must be finite; leave out the replies that are not")
    return B, G
