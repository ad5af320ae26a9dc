"""Triton kernels of a training step on a GPU, see `macaron.nn.fused_functions`, which alone launches them.

All are memory-bound: each reads and writes its tensors once. Numbers are float32 in registers, whatever they are in
memory. Sums over rows (gradients of gains and biases) are one partial sum per program, added up afterwards, so results
do not depend on the order in which programs run. Dropout's decisions are a function of a seed and an index and are
computed again in the backward pass.
"""

import triton
import triton.language as tl


@triton.jit
def mixed(x, seed):
    """A hash of numbers and two seeds."""
    x = x.to(tl.uint32) * 0x9E3779B1 + tl.load(seed).to(tl.uint32, bitcast=True)
    x = ((x ^ (x >> 16)) * 0x7FEB352D) ^ tl.load(seed + 1).to(tl.uint32, bitcast=True)
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def kept(seed, index, rate):
    """Dropout's decisions about indices."""
    return mixed(index, seed) >= tl.full((), rate * 4294967296.0, tl.float32).to(tl.uint32)


@triton.jit
def kept_pairs(seed, row, column, rate):
    """Dropout's decisions about pairs, (rows, columns), in fewer operations."""
    x = mixed(row, seed)[:, None] ^ mixed(column, seed + 2)[None, :]
    x = (x ^ (x >> 15)) * 0x7FEB352D
    return (x ^ (x >> 15)) * 0x846CA68B >= tl.full((), rate * 4294967296.0, tl.float32).to(tl.uint32)


@triton.jit
def column_sums(parts_at, out_at, rows, columns, R: tl.constexpr, BLOCK: tl.constexpr):
    """Partial sums (rows, columns) to their sum (columns,)."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((R, BLOCK), tl.float32)
    for start in range(0, rows, R):
        row = start + tl.arange(0, R)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(parts_at + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(out_at + column, tl.sum(total, 0), mask=column < columns)


@triton.jit
def residual_norm(
    x_at, moved_at, bias_at, gain_at, beta_at, seed, sum_at, norm_at, rows, rate, factor, eps,
    D: tl.constexpr, WIDE: tl.constexpr, R: tl.constexpr, START: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr,
    NORM: tl.constexpr, BETA: tl.constexpr, RMS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """``s = x + factor drop(moved + bias)``, and its norm."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    column = tl.arange(0, WIDE)
    real = column < D
    inside = (row < rows)[:, None] & real[None, :]
    index = row[:, None] * D + column[None, :]
    x = tl.zeros((R, WIDE), tl.float32)
    if START:
        x = tl.load(x_at + index, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        moved = tl.load(moved_at + index, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            moved += tl.load(bias_at + column, mask=real, other=0.0).to(tl.float32)[None, :]
        moved = moved * factor
        if DROP:
            moved = tl.where(kept(seed, index, rate), moved, 0.0)
        rounded = (x + moved).to(sum_at.dtype.element_ty)
        tl.store(sum_at + index, rounded, mask=inside)
        x = tl.where(inside, rounded.to(tl.float32), 0.0)
    if NORM:
        if not RMS:
            x = tl.where(inside, x - (tl.sum(x, 1) / D)[:, None], 0.0)
        x = x * tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None]
        x = x * tl.load(gain_at + column, mask=real, other=0.0).to(tl.float32)[None, :]
        if BETA:
            x += tl.load(beta_at + column, mask=real, other=0.0).to(tl.float32)[None, :]
        tl.store(norm_at + index, x.to(norm_at.dtype.element_ty), mask=inside)


@triton.jit
def residual_norm_backward(
    sum_at, d_sum_at, d_norm_at, gain_at, seed, d_x_at, d_moved_at, parts_at, rows, rate, factor, eps,
    D: tl.constexpr, WIDE: tl.constexpr, R: tl.constexpr, START: tl.constexpr, ADD: tl.constexpr, NORM: tl.constexpr,
    SUM: tl.constexpr, RMS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Its gradients; those of gain, beta and bias as partial sums (programs, 3, D)."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    column = tl.arange(0, WIDE)
    real = column < D
    d_gain = tl.zeros((R, WIDE), tl.float32)
    d_beta = tl.zeros((R, WIDE), tl.float32)
    d_bias = tl.zeros((R, WIDE), tl.float32)
    if NORM:
        gain = tl.load(gain_at + column, mask=real, other=0.0).to(tl.float32)
    for start in range(program * R, rows, programs * R):
        row = start + tl.arange(0, R)
        inside = (row < rows)[:, None] & real[None, :]
        index = row[:, None] * D + column[None, :]
        d_x = tl.zeros((R, WIDE), tl.float32)
        if SUM:
            d_x = tl.load(d_sum_at + index, mask=inside, other=0.0).to(tl.float32)
        if NORM:
            x = tl.load(sum_at + index, mask=inside, other=0.0).to(tl.float32)
            slope = tl.load(d_norm_at + index, mask=inside, other=0.0).to(tl.float32)
            if not RMS:
                x = tl.where(inside, x - (tl.sum(x, 1) / D)[:, None], 0.0)
            scale = tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None]
            x = x * scale
            d_gain += slope * x
            d_beta += slope
            slope = slope * gain[None, :]
            slope -= x * (tl.sum(slope * x, 1) / D)[:, None]
            if not RMS:  # x has the mean zero
                slope -= (tl.sum(slope, 1) / D)[:, None]
            d_x += slope * scale
        if START:
            tl.store(d_x_at + index, d_x.to(d_x_at.dtype.element_ty), mask=inside)
        if ADD:
            d_moved = d_x * factor
            if DROP:
                d_moved = tl.where(kept(seed, index, rate), d_moved, 0.0)
            tl.store(d_moved_at + index, d_moved.to(d_moved_at.dtype.element_ty), mask=inside)
            d_bias += tl.where(inside, d_moved, 0.0)
    part = parts_at + program * 3 * D + column
    tl.store(part, tl.sum(d_gain, 0), mask=real)
    tl.store(part + D, tl.sum(d_beta, 0), mask=real)
    tl.store(part + 2 * D, tl.sum(d_bias, 0), mask=real)


@triton.jit
def activate(
    at, out_at, seed, size, rate, factor, GELU: tl.constexpr, BLOCK: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Gelu or relu, then dropout."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    x = tl.load(at + index, mask=inside, other=0.0).to(tl.float32)
    if GELU:
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        x = tl.maximum(x, 0.0)
    x = x * factor
    if DROP:
        x = tl.where(kept(seed, index, rate), x, 0.0)
    tl.store(out_at + index, x.to(out_at.dtype.element_ty), mask=inside)


@triton.jit
def activate_backward(
    at, d_out_at, seed, d_at, parts_at, rows, columns, rate, factor,
    R: tl.constexpr, BLOCK: tl.constexpr, GELU: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """The gradient of an activation, and its sums over rows, (programs, columns); of relu from the result."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    program, programs = tl.program_id(1), tl.num_programs(1)
    total = tl.zeros((R, BLOCK), tl.float32)
    for start in range(program * R, rows, programs * R):
        row = start + tl.arange(0, R)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        index = row[:, None] * columns + column[None, :]
        x = tl.load(at + index, mask=inside, other=0.0).to(tl.float32)
        slope = tl.load(d_out_at + index, mask=inside, other=0.0).to(tl.float32) * factor
        if GELU:
            share = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
            slope = slope * (share + x * tl.exp(-0.5 * x * x) * 0.3989422804014327)
            if DROP:
                slope = tl.where(kept(seed, index, rate), slope, 0.0)
        else:  # of relu, the result after dropout says enough
            slope = tl.where(x > 0.0, slope, 0.0)
        tl.store(d_at + index, slope.to(d_at.dtype.element_ty), mask=inside)
        total += slope
    tl.store(parts_at + program * columns + column, tl.sum(total, 0), mask=column < columns)


@triton.jit
def join_columns(a_at, b_at, c_at, out_at, parts_at, rows, columns, R: tl.constexpr, BLOCK: tl.constexpr):
    """Three tensors (rows, columns) side by side, and the sums over their rows, (programs, 3 columns)."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    which, program, programs = tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    at = a_at
    if which == 1:
        at = b_at
    if which == 2:
        at = c_at
    total = tl.zeros((R, BLOCK), tl.float32)
    for start in range(program * R, rows, programs * R):
        row = start + tl.arange(0, R)
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        x = tl.load(at + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
        tl.store(out_at + row[:, None] * (3 * columns) + which * columns + column[None, :], x, mask=inside)
        total += x.to(tl.float32)
    part = parts_at + (program * 3 + which) * columns + column
    tl.store(part, tl.sum(total, 0), mask=column < columns)


@triton.jit
def signed_weights(
    q, k, query_text, key_text, seed, program, start, scale, rate,
    CAUSAL: tl.constexpr, T: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Softmax within texts, (ROWS, T), zero where a query has no key; negative where dropout takes it."""
    row, column = start + tl.arange(0, ROWS), tl.arange(0, T)
    allowed = query_text[:, None] == key_text[None, :]
    if CAUSAL:
        allowed = allowed & (row[:, None] >= column[None, :])
    logits = tl.where(allowed, tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634), -1.0e30)
    weights = tl.where(allowed, tl.exp2(logits - tl.max(logits, 1)[:, None]), 0.0)
    total = tl.sum(weights, 1)
    weights = weights * (1.0 / tl.where(total > 0.0, total, 1.0))[:, None]
    if DROP:
        weights = tl.where(kept_pairs(seed, program * T + row, column, rate), weights, -weights)
    return weights.to(q.dtype)


@triton.jit
def attend(
    q_at, k_at, v_at, query_text_at, key_text_at, seed, out_at, scale, rate, factor,
    Q_STRIDE: tl.constexpr, K_STRIDE: tl.constexpr, H: tl.constexpr, T: tl.constexpr, W: tl.constexpr,
    CAUSAL: tl.constexpr, ROWS: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Attention of one head to all keys of a row, for ROWS of its queries."""
    program, start = tl.program_id(0) // (T // ROWS), tl.program_id(0) % (T // ROWS) * ROWS
    row, head = program // H, program % H
    queries = row * T + start + tl.arange(0, ROWS)
    keys = row * T + tl.arange(0, T)
    w = head * W + tl.arange(0, W)
    q = tl.load(q_at + queries[:, None] * Q_STRIDE + w[None, :])
    k = tl.load(k_at + keys[:, None] * K_STRIDE + w[None, :])
    v = tl.load(v_at + keys[:, None] * K_STRIDE + w[None, :])
    query_text, key_text = tl.load(query_text_at + queries), tl.load(key_text_at + keys)
    signed = signed_weights(q, k, query_text, key_text, seed, program, start, scale, rate, CAUSAL, T, ROWS, DROP)
    out = tl.dot(tl.maximum(signed, 0.0).to(q.dtype), v) * factor
    tl.store(out_at + queries[:, None] * (H * W) + w[None, :], out.to(out_at.dtype.element_ty))


@triton.jit
def attend_backward(
    q_at, k_at, v_at, query_text_at, key_text_at, seed, d_out_at, dq_at, dk_at, dv_at, q_parts, k_parts, v_parts,
    scale, rate, factor,
    Q_STRIDE: tl.constexpr, K_STRIDE: tl.constexpr, H: tl.constexpr, T: tl.constexpr, W: tl.constexpr,
    CAUSAL: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """The gradients of one head of a row, and their sums over the row, which are for biases."""
    program = tl.program_id(0)
    row, head = program // H, program % H
    t = row * T + tl.arange(0, T)
    w = head * W + tl.arange(0, W)
    q_index = t[:, None] * Q_STRIDE + w[None, :]
    k_index = t[:, None] * K_STRIDE + w[None, :]
    q = tl.load(q_at + q_index)
    k = tl.load(k_at + k_index)
    d_out = tl.load(d_out_at + t[:, None] * (H * W) + w[None, :])
    query_text, key_text = tl.load(query_text_at + t), tl.load(key_text_at + t)
    signed = signed_weights(q, k, query_text, key_text, seed, program, 0, scale, rate, CAUSAL, T, T, DROP)
    dv = tl.dot(tl.trans(tl.maximum(signed, 0.0).to(q.dtype)), d_out) * factor
    tl.store(dv_at + k_index, dv.to(dv_at.dtype.element_ty))
    tl.store(v_parts + row * K_STRIDE + w, tl.sum(dv, 0))
    v = tl.load(v_at + k_index)
    dp = tl.dot(d_out, tl.trans(v))
    dp = tl.where(signed > 0.0, dp * factor, 0.0)
    p = tl.abs(signed).to(tl.float32)
    ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(q.dtype)
    dq = tl.dot(ds, k)
    tl.store(dq_at + q_index, dq.to(dq_at.dtype.element_ty))
    tl.store(q_parts + row * Q_STRIDE + w, tl.sum(dq, 0))
    dk = tl.dot(tl.trans(ds), q)
    tl.store(dk_at + k_index, dk.to(dk_at.dtype.element_ty))
    tl.store(k_parts + row * K_STRIDE + w, tl.sum(dk, 0))


@triton.jit
def smoothed_loss(logits_at, target_at, losses_at, size, smoothing, ignored, SLOPE: tl.constexpr, BLOCK: tl.constexpr):
    """Smoothed loss and nll of each row, (rows, 2); the gradient of the first replaces the logits."""
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_at + row)
    column = tl.arange(0, BLOCK)
    start_at = logits_at + row * size
    most = tl.full((BLOCK,), -1.0e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    plain = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        inside = start + column < size
        x = tl.load(start_at + start + column, mask=inside, other=-1.0e30).to(tl.float32)
        higher = tl.maximum(most, x)
        total = total * tl.exp(most - higher) + tl.where(inside, tl.exp(x - higher), 0.0)
        plain += tl.where(inside, x, 0.0)
        most = higher
    peak = tl.max(most, 0)
    normaliser = peak + tl.log(tl.sum(total * tl.exp(most - peak), 0))
    real = (target != ignored).to(tl.float32)
    nll = (normaliser - tl.load(start_at + target).to(tl.float32)) * real
    mean = tl.sum(plain, 0) / size
    tl.store(losses_at + 2 * row, (1 - smoothing) * nll + smoothing * (normaliser - mean) * real)
    tl.store(losses_at + 2 * row + 1, nll)
    if SLOPE:
        tl.debug_barrier()  # the target's logit is read before it is overwritten
        for start in range(0, size, BLOCK):
            inside = start + column < size
            x = tl.load(start_at + start + column, mask=inside, other=-1.0e30).to(tl.float32)
            slope = tl.exp(x - normaliser) - smoothing / size
            slope = tl.where(start + column == target, slope + smoothing - 1.0, slope) * real
            tl.store(start_at + start + column, slope.to(logits_at.dtype.element_ty), mask=inside)
