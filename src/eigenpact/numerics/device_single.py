"""Kernels for products of rows in single precision on a GPU, in Triton, by its matrix units for numbers of eleven bits.

Rows X (n x d) are centred in registers, W = X - 1 u^T, in single precision.  Entries w of W, a of a block and t of scores are
made of two numbers each, w = w' + w'', of which w' has eleven bits and w'' the next ones, so that products of two are exact, and

    w a = w' a' + w' a'' + w'' a',

which leaves w'' a'' out.  Up to ``SUMMED`` such products are added up in single precision, the small ones first; these sums are
added up in double.

**What that may be off by.**  Parts of a number leave 2^-22 of it at most, and what is left out of a product is as small; so is
what rounding leaves of t.  Sums: the units promise single precision, add up eight products and a sum at a time, and may cut off
each of the nine where others round.  So a sum of m products may be off by 9/8 m 2^-23 of the sum of their sizes.  Together a
score, and likewise a product of scores, is off by (9/8 SUMMED + 9) 2^-23 of the sum of the sizes at most.  For a column z of
length one, |w_i| the length of row i and |W|^2 the trace, the scores t_i are off by that part of |w_i|, and W^T t by twice that
part of |W|^2: 2e-5, less than ``ERROR`` in ``single.py``.  That is for numbers whose roundings all point the same way, in every
sum.  The units may take numbers below 2^-126 for zero, which is less than the range allows for that ``single.py`` asks for.

``device_work.py`` calls these.
"""

import importlib.util
from types import SimpleNamespace

if importlib.util.find_spec("triton") is not None:
    import triton
    import triton.language as tl

    jit = triton.jit
else:  # so that this file can be read without it; nothing here runs then
    tl = SimpleNamespace(constexpr=int)

    def jit(function):
        """Leave a kernel as it is."""
        return function


SUMMED = 64
"""Products that are added up in single precision, at most: features or rows of a tile."""


@jit
def high(x):
    """x, rounded to eleven bits."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@jit
def split_block(B, D, V, AH, AL, R, d, k, tiles, d_all, BD: tl.constexpr, KP: tl.constexpr):
    """AH + AL = (D^-1 B)^T (KP x d_all) for a block B (d x k) and the diagonal of D (d,), zero in other places, in ``tiles`` of
    BD features; and parts R (programs x 2 x KP) of V B for V (2 x d)."""
    program = tl.program_id(0)
    j = tl.arange(0, KP)
    one = tl.zeros((BD, KP), tl.float64)
    other = tl.zeros((BD, KP), tl.float64)
    for i in range(program, tiles, tl.num_programs(0)):
        f = i * BD + tl.arange(0, BD)
        b = tl.load(B + f[:, None] * k + j[None, :], mask=(f < d)[:, None] & (j < k)[None, :], other=0.0)
        one += b * tl.load(V + f, mask=f < d, other=0.0)[:, None]
        other += b * tl.load(V + d + f, mask=f < d, other=0.0)[:, None]
        a = b / tl.load(D + f, mask=f < d, other=1.0)[:, None]
        a_high = high(a.to(tl.float32))
        to = f[:, None] + j[None, :] * d_all
        tl.store(AH + to, a_high)
        tl.store(AL + to, high((a - a_high.to(tl.float64)).to(tl.float32)))
    to = R + program * 2 * KP + j
    tl.store(to, tl.sum(one, 0))
    tl.store(to + KP, tl.sum(other, 0))


@jit
def three_products(w, b_high, b_low):
    """The product of w with b_high + b_low, in double precision."""
    w_high = high(w)
    s = tl.dot(w - w_high, b_high, input_precision="tf32")
    s = tl.dot(w_high, b_low, s, input_precision="tf32")
    return tl.dot(w_high, b_high, s, input_precision="tf32").to(tl.float64)


@jit
def single_scores(
    X,
    AH,
    AL,
    U,
    TH,
    TL,
    n,
    d_vec,
    stride_vec,
    n_all,
    d_all,
    VEC: tl.constexpr,
    BM: tl.constexpr,
    BD: tl.constexpr,
    KP: tl.constexpr,
):
    """TH + TL = (W A)^T (KP x n_all) for A = (AH + AL)^T (d_all x KP); zero for rows beyond n."""
    d = d_vec * VEC
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    row = X + (tl.minimum(r, n - 1).to(tl.int64) * stride_vec * VEC)[:, None]
    i = tl.arange(0, KP)
    acc = tl.zeros((BM, KP), tl.float64)
    whole = d // BD * BD
    for j in range(0, whole, BD):
        f = j + tl.arange(0, BD)
        at = f[:, None] + i[None, :] * d_all
        w = tl.load(row + f[None, :]) - tl.load(U + f)[None, :]
        acc += three_products(w, tl.load(AH + at), tl.load(AL + at))
    if whole < d:
        f = whole + tl.arange(0, BD)
        at = f[:, None] + i[None, :] * d_all
        w = tl.load(row + f[None, :], mask=(f < d)[None, :], other=0.0) - tl.load(U + f, mask=f < d, other=0.0)[None, :]
        acc += three_products(w, tl.load(AH + at), tl.load(AL + at))
    t = tl.where(r[:, None] < n, acc, 0.0).to(tl.float32)
    t_high = high(t)
    to = i[None, :].to(tl.int64) * n_all + r[:, None]
    tl.store(TH + to, t_high)
    tl.store(TL + to, t - t_high)


@jit
def single_back(
    X,
    TH,
    TL,
    U,
    P,
    n,
    d_vec,
    stride_vec,
    n_all,
    k,
    rows,
    VEC: tl.constexpr,
    BM: tl.constexpr,
    BD: tl.constexpr,
    KP: tl.constexpr,
):
    """Parts P (parts x k x d) of T^T W for T = (TH + TL)^T (n_all x KP), ``rows`` rows in each, which are whole tiles of BM."""
    d = d_vec * VEC
    f = tl.program_id(0) * BD + tl.arange(0, BD)
    there = f < d
    part = tl.program_id(1)
    u = tl.load(U + f, mask=there, other=0.0)
    i = tl.arange(0, KP)
    acc = tl.zeros((BD, KP), tl.float64)
    for m in range(part * rows, tl.minimum(part * rows + rows, n), BM):
        r = m + tl.arange(0, BM)
        at = X + (tl.minimum(r, n - 1).to(tl.int64) * stride_vec * VEC)[None, :] + f[:, None]
        w = tl.load(at, mask=there[:, None], other=0.0) - u[:, None]  # beyond the last row this meets zeros of T
        t = i[None, :].to(tl.int64) * n_all + r[:, None]
        acc += three_products(w, tl.load(TH + t), tl.load(TL + t))
    to = P + part.to(tl.int64) * d * k + f[:, None]
    tl.store(to + i[None, :] * d, acc, mask=there[:, None] & (i < k)[None, :])
