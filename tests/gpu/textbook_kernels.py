"""Correct kernels of the kind that every CUDA course contains.

None may raise an alarm. `textbook_cases` launches them.
"""

import math

import numpy as np

from attention_lab.gpu import cuda

float32 = np.float32
int32 = np.int32
TILE = 8
PADDED = TILE + 1
BLOCK = 64
RADIUS = 2
HALO = BLOCK + 2 * RADIUS
BINS = 7
FULL = 0xFFFFFFFF


@cuda.jit
def vector_add(total, left, right):
    i = cuda.grid(1)
    if i < total.shape[0]:
        total[i] = left[i] + right[i]


@cuda.jit
def strided_axpy(out, x, factor):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = factor * x[i] + out[i]


@cuda.jit
def block_sum(sums, values):
    partial = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    partial[t] = values[i] if i < values.shape[0] else float32(0.0)
    cuda.syncthreads()
    step = BLOCK // 2
    while step > 0:
        if t < step:
            partial[t] += partial[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        sums[cuda.blockIdx.x] = partial[0]


@cuda.jit(device=True)
def warp_sum(value):
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(FULL, value, offset)
    return value


@cuda.jit
def shuffle_sum(sums, values):
    per_warp = cuda.shared.array(2, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    mine = float32(0.0)
    if i < values.shape[0]:
        mine = values[i]
    mine = warp_sum(mine)
    if cuda.laneid == 0:
        per_warp[t // 32] = mine
    cuda.syncthreads()
    if t == 0:
        sums[cuda.blockIdx.x] = per_warp[0] + per_warp[1]


@cuda.jit
def warp_tree(out, values):
    buffer = cuda.shared.array(32, float32)
    lane = cuda.threadIdx.x
    buffer[lane] = values[lane]
    cuda.syncwarp()
    for step in (16, 8, 4, 2, 1):
        other = buffer[(lane + step) % 32]
        cuda.syncwarp()
        buffer[lane] += other
        cuda.syncwarp()
    out[lane] = buffer[lane]


@cuda.jit
def prefix_sum(out, values):
    lanes = cuda.shared.array((2, BLOCK), float32)
    t = cuda.threadIdx.x
    side = 0
    lanes[side, t] = values[t]
    cuda.syncthreads()
    reach = 1
    while reach < BLOCK:
        new = 1 - side
        if t >= reach:
            lanes[new, t] = lanes[side, t] + lanes[side, t - reach]
        else:
            lanes[new, t] = lanes[side, t]
        side = new
        reach *= 2
        cuda.syncthreads()
    out[t] = lanes[side, t]


@cuda.jit
def histogram(counts, values):
    mine = cuda.shared.array(BINS, int32)
    t = cuda.threadIdx.x
    if t < BINS:
        mine[t] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < values.shape[0]:
        cuda.atomic.add(mine, values[i] % BINS, 1)
    cuda.syncthreads()
    if t < BINS:
        cuda.atomic.add(counts, t, mine[t])


@cuda.jit
def largest(out, values):
    i = cuda.grid(1)
    if i < values.shape[0]:
        cuda.atomic.max(out, 0, values[i])
        cuda.atomic.min(out, 1, values[i])


@cuda.jit
def transpose_naive(out, matrix):
    column, row = cuda.grid(2)
    if row < matrix.shape[0] and column < matrix.shape[1]:
        out[column, row] = matrix[row, column]


@cuda.jit
def transpose_padded(out, matrix):
    tile = cuda.shared.array((TILE, PADDED), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0 = cuda.blockIdx.x * TILE
    y0 = cuda.blockIdx.y * TILE
    if y0 + ty < matrix.shape[0] and x0 + tx < matrix.shape[1]:
        tile[ty, tx] = matrix[y0 + ty, x0 + tx]
    cuda.syncthreads()
    if x0 + ty < out.shape[0] and y0 + tx < out.shape[1]:
        out[x0 + ty, y0 + tx] = tile[tx, ty]


@cuda.jit
def moving_average(out, values):
    window = cuda.shared.array(HALO, float32)
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * BLOCK - RADIUS
    for k in range(t, HALO, BLOCK):
        source = first + k
        inside = 0 <= source < values.shape[0]
        window[k] = values[source] if inside else float32(0.0)
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < out.shape[0]:
        total = float32(0.0)
        for k in range(2 * RADIUS + 1):
            total += window[t + k]
        out[i] = total / float32(2 * RADIUS + 1)


@cuda.jit(device=True)
def load_tile(tile, matrix, row, column):
    """All threads of the block fill the tile, and wait for each other."""
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    if row < matrix.shape[0] and column < matrix.shape[1]:
        tile[ty, tx] = matrix[row, column]
    else:
        tile[ty, tx] = float32(0.0)
    cuda.syncthreads()


@cuda.jit
def tiled_matmul(out, left, right):
    left_tile = cuda.shared.array((TILE, TILE), float32)
    right_tile = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    total = float32(0.0)
    for start in range(0, left.shape[1], TILE):
        load_tile(left_tile, left, row, start + tx)
        load_tile(right_tile, right, start + ty, column)
        for k in range(TILE):
            total += left_tile[ty, k] * right_tile[k, tx]
        cuda.syncthreads()
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = total


@cuda.jit(device=True)
def row_statistics(row):
    """Return the mean and the variance of one row."""
    mean = float32(0.0)
    for k in range(row.shape[0]):
        mean += row[k]
    mean /= float32(row.shape[0])
    variance = float32(0.0)
    for k in range(len(row)):
        variance += (row[k] - mean) ** 2
    return mean, variance / float32(row.shape[0])


@cuda.jit
def layer_norm(out, rows, weight, epsilon):
    r = cuda.grid(1)
    if r >= rows.shape[0]:
        return
    mean, variance = row_statistics(rows[r])
    scale = float32(1.0) / math.sqrt(variance + epsilon)
    for k in range(rows.shape[1]):
        out[r, k] = (rows[r, k] - mean) * scale * weight[k]


@cuda.jit
def softmax_rows(out, scores):
    partial = cuda.shared.array(BLOCK, float32)
    r = cuda.blockIdx.x
    t = cuda.threadIdx.x
    highest = float32(-math.inf)
    for k in range(t, scores.shape[1], BLOCK):
        highest = max(highest, scores[r, k])
    partial[t] = highest
    cuda.syncthreads()
    step = BLOCK // 2
    while step:
        if t < step:
            partial[t] = max(partial[t], partial[t + step])
        cuda.syncthreads()
        step >>= 1
    highest = partial[0]
    cuda.syncthreads()
    total = float32(0.0)
    for k in range(t, scores.shape[1], BLOCK):
        total += math.exp(scores[r, k] - highest)
    partial[t] = total
    cuda.syncthreads()
    step = BLOCK // 2
    while step:
        if t < step:
            partial[t] += partial[t + step]
        cuda.syncthreads()
        step >>= 1
    for k in range(t, scores.shape[1], BLOCK):
        out[r, k] = math.exp(scores[r, k] - highest) / partial[0]


@cuda.jit
def reverse_dynamic(out, values):
    buffer = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    buffer[t] = values[t]
    cuda.syncthreads()
    out[t] = buffer[cuda.blockDim.x - 1 - t]


@cuda.jit
def count_positive(out, values):
    t = cuda.threadIdx.x
    many = cuda.syncthreads_count(values[t] > 0)
    every = cuda.syncthreads_and(values[t] > -100)
    some = cuda.syncthreads_or(values[t] > 100)
    if t == 0:
        out[0] = many
        out[1] = every
        out[2] = some


@cuda.jit
def votes(out, values):
    t = cuda.threadIdx.x
    positive = values[t] > 0
    bits = cuda.ballot_sync(FULL, positive)
    out[t, 0] = cuda.popc(bits)
    out[t, 1] = cuda.all_sync(FULL, positive)
    out[t, 2] = cuda.any_sync(FULL, positive)
    out[t, 3] = cuda.shfl_sync(FULL, t, 5)
    out[t, 4] = cuda.shfl_xor_sync(FULL, t, 1)
    out[t, 5] = cuda.shfl_up_sync(FULL, t, 2)


@cuda.jit
def first_above(out, rows, limit):
    r = cuda.grid(1)
    if r < rows.shape[0]:
        place = -1
        for k in range(rows.shape[1]):
            if rows[r, k] <= limit:
                continue
            place = k
            break
        else:
            place = -2
        out[r] = place


@cuda.jit
def collatz(out, starts):
    i = cuda.grid(1)
    if i < starts.size:
        n = starts[i]
        steps = 0
        while n != 1:
            if n % 2 == 0:
                n //= 2
            else:
                n = 3 * n + 1
            steps += 1
        out[i] = steps


@cuda.jit
def box_filter_3d(out, volume):
    x, y, z = cuda.grid(3)
    depth, height, width = volume.shape
    if x < width and y < height and z < depth:
        total = float32(0.0)
        for dz in range(-1, 2):
            if 0 <= z + dz < depth:
                total += volume[z + dz, y, x]
        out[z, y, x] = total


@cuda.jit
def top_two(out, rows):
    best = cuda.local.array(2, float32)
    r = cuda.grid(1)
    best[0] = float32(-math.inf)
    best[1] = float32(-math.inf)
    if r < rows.shape[0]:
        for k in range(rows.shape[1]):
            value = rows[r, k]
            if value > best[0]:
                best[0], best[1] = value, best[0]
            elif value > best[1]:
                best[1] = value
        for k in range(2):
            out[r, k] = best[k]


@cuda.jit
def claim(owners, attempts):
    i = cuda.grid(1)
    if i < attempts.size:
        cuda.atomic.cas(owners, attempts[i], 0, attempts[i] + 1)
        cuda.atomic.sub(owners, 0, 1)
