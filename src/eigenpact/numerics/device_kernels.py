"""Kernels for rows on a GPU, in Triton, which comes with torch: rows are read as they are, all sums are in double precision.

Rows X (n x d) are of single or double precision.  Entries become doubles in registers, where a centre u (d,) is subtracted, so
that W = X - 1 u^T is never stored, and no digit of it is lost.  Products use the double precision matrix units.  A sum over rows
is made in parts whose number depends on the shape alone, and parts are added in their order: the same input gives the same bits.

A block has up to 128 columns, at most three powers of two side by side (``K0``, ``K1``, ``K2``, 0 for none), padded with zeros,
and with rows of zeros up to a whole tile of features.  ``VEC`` neighbouring entries, by which d and the stride of the rows
divide, are read at once.  In place of rows beyond n the last one is read, and meets zeros.

``device_work.py`` and ``device_rows.py`` call these and say what they are for; ``device_single.py`` has others.
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


@jit
def pad_block(B, D, V, A, R, d, k, tiles, BD: tl.constexpr, KP: tl.constexpr, K: tl.constexpr):
    """A = D^-1 B (d x K) for a block B (d x k) and the diagonal of D (d,), with zeros up to whole ``tiles`` of BD rows; and parts
    R (programs x 2 x K) of V B for V (2 x d).  KP >= K."""
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
        tl.store(A + f[:, None] * K + j[None, :], a, mask=(j < K)[None, :])
    to = R + program * 2 * K + j
    tl.store(to, tl.sum(one, 0), mask=j < K)
    tl.store(to + K, tl.sum(other, 0), mask=j < K)


@jit
def scores(
    X,
    A,
    U,
    T,
    n,
    d_vec,
    stride_vec,
    VEC: tl.constexpr,
    BM: tl.constexpr,
    BD: tl.constexpr,
    K0: tl.constexpr,
    K1: tl.constexpr,
    K2: tl.constexpr,
):
    """T = W A (n x K) for a block A (d x K), K = K0 + K1 + K2; rows of T beyond n are zero, up to whole tiles of BM rows."""
    K: tl.constexpr = K0 + K1 + K2
    d = d_vec * VEC
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    here = r[:, None] < n
    row = X + (tl.minimum(r, n - 1).to(tl.int64) * stride_vec * VEC)[:, None]
    i0 = tl.arange(0, K0)
    acc0 = tl.zeros((BM, K0), tl.float64)
    if K1 > 0:
        i1 = K0 + tl.arange(0, K1)
        acc1 = tl.zeros((BM, K1), tl.float64)
    if K2 > 0:
        i2 = K0 + K1 + tl.arange(0, K2)
        acc2 = tl.zeros((BM, K2), tl.float64)
    for j in range(0, d, BD):
        f = j + tl.arange(0, BD)
        there = f < d
        x = tl.load(row + f[None, :], mask=there[None, :], other=0.0)
        w = x.to(tl.float64) - tl.load(U + f, mask=there, other=0.0)[None, :]
        a = A + f[:, None] * K
        acc0 = tl.dot(w, tl.load(a + i0[None, :]), acc0, out_dtype=tl.float64)
        if K1 > 0:
            acc1 = tl.dot(w, tl.load(a + i1[None, :]), acc1, out_dtype=tl.float64)
        if K2 > 0:
            acc2 = tl.dot(w, tl.load(a + i2[None, :]), acc2, out_dtype=tl.float64)
    to = T + r.to(tl.int64)[:, None] * K
    tl.store(to + i0[None, :], tl.where(here, acc0, 0.0))
    if K1 > 0:
        tl.store(to + i1[None, :], tl.where(here, acc1, 0.0))
    if K2 > 0:
        tl.store(to + i2[None, :], tl.where(here, acc2, 0.0))


@jit
def back(
    X,
    T,
    U,
    P,
    n,
    d_vec,
    stride_vec,
    k,
    rows,
    VEC: tl.constexpr,
    BM: tl.constexpr,
    BD: tl.constexpr,
    K0: tl.constexpr,
    K1: tl.constexpr,
    K2: tl.constexpr,
):
    """Parts P (parts x k x d) of T^T W, ``rows`` rows of W and of T (n x K) in each, which are whole tiles of BM."""
    K: tl.constexpr = K0 + K1 + K2
    d = d_vec * VEC
    f = tl.program_id(0) * BD + tl.arange(0, BD)
    there = f < d
    part = tl.program_id(1)
    last = tl.minimum(part * rows + rows, n)
    u = tl.load(U + f, mask=there, other=0.0)
    i0 = tl.arange(0, K0)
    acc0 = tl.zeros((BD, K0), tl.float64)
    if K1 > 0:
        i1 = K0 + tl.arange(0, K1)
        acc1 = tl.zeros((BD, K1), tl.float64)
    if K2 > 0:
        i2 = K0 + K1 + tl.arange(0, K2)
        acc2 = tl.zeros((BD, K2), tl.float64)
    for i in range(part * rows, last, BM):
        r = i + tl.arange(0, BM)
        # the tile is read as its transpose: so the matrix units get it without a detour
        at = X + (tl.minimum(r, n - 1).to(tl.int64) * stride_vec * VEC)[None, :] + f[:, None]
        x = tl.load(at, mask=there[:, None], other=0.0)
        w = x.to(tl.float64) - u[:, None]  # beyond the last row this meets zeros of T
        t = T + r.to(tl.int64)[:, None] * K
        acc0 = tl.dot(w, tl.load(t + i0[None, :]), acc0, out_dtype=tl.float64)
        if K1 > 0:
            acc1 = tl.dot(w, tl.load(t + i1[None, :]), acc1, out_dtype=tl.float64)
        if K2 > 0:
            acc2 = tl.dot(w, tl.load(t + i2[None, :]), acc2, out_dtype=tl.float64)
    to = P + part.to(tl.int64) * d * k + f[:, None]
    tl.store(to + i0[None, :] * d, acc0, mask=there[:, None] & (i0 < k)[None, :])
    if K1 > 0:
        tl.store(to + i1[None, :] * d, acc1, mask=there[:, None] & (i1 < k)[None, :])
    if K2 > 0:
        tl.store(to + i2[None, :] * d, acc2, mask=there[:, None] & (i2 < k)[None, :])


@jit
def finish(P, F, R, D, G, d, k, parts, acted, K: tl.constexpr, KP: tl.constexpr, BD: tl.constexpr):
    """G = D^-1 (sum of parts P + F_0 R_0^T + F_1 R_1^T) (d x k) with F (2 x d), R (2 x K), which is the sum of so many parts as
    are ``acted``, and the diagonal of D (d,)."""
    f = tl.program_id(0) * BD + tl.arange(0, BD)
    j = tl.arange(0, KP)
    ok = (j < k)[:, None] & (f < d)[None, :]
    at = P + j[:, None] * d + f[None, :]
    total = tl.zeros((KP, BD), tl.float64)
    for block in range(0, parts, 8):
        part = block + tl.zeros((KP, BD), tl.int32)
        for i in tl.static_range(8):  # whose loads do not wait for each other
            total += tl.load(at, mask=ok & (part + i < parts), other=0.0)
            at += k * d
    for i in tl.static_range(2):
        of_f = tl.load(F + i * d + f, mask=f < d, other=0.0)
        of_j = tl.zeros((8, KP), tl.float64)
        for block in range(0, acted, 8):
            part = block + tl.arange(0, 8)[:, None]
            of_j += tl.load(R + (2 * part + i) * K + j[None, :], mask=(part < acted) & (j < k)[None, :], other=0.0)
        total += tl.sum(of_j, 0)[:, None] * of_f[None, :]
    total /= tl.load(D + f, mask=f < d, other=1.0)[None, :]
    tl.store(G + f[:, None] * k + j[None, :], tl.trans(total), mask=(f < d)[:, None] & (j < k)[None, :])


@jit
def two_sum(a, b):
    """a + b, rounded, and what rounding left of it (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@jit
def merge(high, low, more_high, more_low):
    """The sum of two sums, each with what rounding left of it."""
    total, left = two_sum(high, more_high)
    return total, left + (low + more_low)


@jit
def moments(
    X,
    U,
    S,
    n,
    d_vec,
    stride_vec,
    rows,
    VEC: tl.constexpr,
    BM: tl.constexpr,
    BD: tl.constexpr,
    SQUARES: tl.constexpr,
):
    """Parts S (parts x 2 x d, with ``SQUARES`` parts x 4 x d) of the sums of the columns of W and of their squares.

    A sum is a pair: rounded, and what rounding left of it.
    """
    d = d_vec * VEC
    f = tl.program_id(0) * BD + tl.arange(0, BD)
    there = f < d
    part = tl.program_id(1)
    last = tl.minimum(part * rows + rows, n)
    u = tl.load(U + f, mask=there, other=0.0)
    high = tl.zeros((BM, BD), tl.float64)
    low = tl.zeros((BM, BD), tl.float64)
    if SQUARES:
        high_2 = tl.zeros((BM, BD), tl.float64)
        low_2 = tl.zeros((BM, BD), tl.float64)
    for i in range(part * rows, last, BM):
        r = i + tl.arange(0, BM)
        ok = (r < last)[:, None] & there[None, :]
        x = tl.load(X + (r.to(tl.int64) * stride_vec * VEC)[:, None] + f[None, :], mask=ok, other=0.0)
        w = tl.where(ok, x.to(tl.float64) - u[None, :], 0.0)
        high, left = two_sum(high, w)
        low += left
        if SQUARES:
            high_2, left_2 = two_sum(high_2, w * w)
            low_2 += left_2
    W: tl.constexpr = 4 if SQUARES else 2
    to = S + part.to(tl.int64) * W * d + f
    high_all, low_all = tl.reduce((high, low), 0, merge)
    tl.store(to, high_all, mask=there)
    tl.store(to + d, low_all, mask=there)
    if SQUARES:
        high_all, low_all = tl.reduce((high_2, low_2), 0, merge)
        tl.store(to + 2 * d, high_all, mask=there)
        tl.store(to + 3 * d, low_all, mask=there)


@jit
def add_pairs(S, M, d, parts, W: tl.constexpr, BD: tl.constexpr):
    """The sums M (W/2 x d) of the pairs in parts S (parts x W x d), to the last digit."""
    f = tl.program_id(0) * BD + tl.arange(0, BD)
    there = f < d
    for i in tl.static_range(W // 2):
        high = tl.zeros((BD,), tl.float64)
        low = tl.zeros((BD,), tl.float64)
        at = S + 2 * i * d + f
        for _ in range(parts):
            high, low = merge(high, low, tl.load(at, mask=there, other=0.0), tl.load(at + d, mask=there, other=0.0))
            at += W * d
        tl.store(M + i * d + f, tl.where(low * 0.0 == 0.0, high + low, high), mask=there)  # infinite sums stay as they are
