"""Correct kernels that use more of Python than indices and ranges.

None may raise an alarm. `textbook_cases` launches them.
"""

import numpy as np

from attention_lab.gpu import cuda

float32 = np.float32
LINE = 32


@cuda.jit
def heat_in_steps(out, start, steps):
    now = cuda.shared.array(LINE, float32)
    new = cuda.shared.array(LINE, float32)
    t = cuda.threadIdx.x
    now[t] = start[t]
    cuda.syncthreads()
    for _ in range(steps):
        if 0 < t < LINE - 1:
            new[t] = float32(0.25) * (now[t - 1] + now[t + 1]) + (
                float32(0.5) * now[t]
            )
        else:
            new[t] = now[t]
        cuda.syncthreads()
        now, new = new, now
    out[t] = now[t]


@cuda.jit
def scan_in_two_rows(out, values):
    rows = cuda.shared.array((2, LINE), float32)
    source, target = rows[0], rows[1]
    t = cuda.threadIdx.x
    source[t] = values[t]
    cuda.syncthreads()
    d = 0
    while 2**d < LINE:
        below = source[t - 2**d] if t >= 2**d else float32(0.0)
        target[t] = source[t] + below
        cuda.syncthreads()
        source, target = target, source
        d += 1
    out[t] = source[t]


@cuda.jit
def dot_of_rows(out, left, right):
    r = cuda.grid(1)
    if r < len(out):
        total = float32(0.0)
        for a, b in zip(left[r], right[r]):  # noqa: B905 - Numba's zip
            total += a * b
        out[r] = total


@cuda.jit
def place_of_largest(out, rows):
    r = cuda.grid(1)
    if r < len(rows):
        best = 0
        for i, value in enumerate(rows[r]):
            if value > rows[r, best]:
                best = i
        out[r] = best


@cuda.jit
def blank_bad_rows(out, rows):
    r = cuda.grid(1)
    if r < len(rows):
        low, high = rows[r, 0], rows[r, 0]
        for value in rows[r]:
            low, high = min(low, value), max(high, value)
        out[r, :] = high - low
        out[r, 1:-1] = 0
