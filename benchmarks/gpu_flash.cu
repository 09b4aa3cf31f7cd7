// The kernel of attention_lab/steps/flash_register.py in CUDA C, part by part,
// for float32 without a mask to add. It says what Numba costs: same threads,
// same tiles, same order of sums. Unlike Numba's it knows that its arrays are
// contiguous, and it has no negative index.
//
// The compiler gets D, D_V, TILE_L, TILE_S and IS_CAUSAL as -D options.

#define ROWS 4
#define LANES 16
#define LANE_BITS 4
#define UNROLLED 4
#define EVERY_LANE 0xFFFFFFFFu
#define LOG2E 1.4426950408889634f
#define NOTHING __int_as_float(0xff800000)  // -infinity: no key seen

#define CDIV(a, b) (((a) + (b) - 1) / (b))
#define PADDED(a, b) (CDIV(a, b) * (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

constexpr int COLS = TILE_S / LANES;
constexpr int WIDTH = CDIV(D_V, LANES);
constexpr int D_PADDED = PADDED(D, UNROLLED);
constexpr int Q_WIDTH = D_PADDED + 4;
constexpr int KV_WIDTH = LARGER(D_PADDED, WIDTH * LANES) | 1;

// All threads of a block copy rows of x, times a factor; the rest becomes 0.
template <int columns, int width, int rows>
__device__ void load_rows(float (*tile)[width], const float* x, int first,
                          int length, int channels, float factor) {
    for (int s = threadIdx.y; s < rows; s += blockDim.y) {
        for (int d = threadIdx.x; d < columns; d += LANES) {
            float number = 0.0f;
            if (first + s < length && d < channels) {
                number = x[(size_t)(first + s) * channels + d] * factor;
            }
            tile[s][d] = number;
        }
    }
}

// One block per TILE_L queries of a head; 16 threads per 4 queries.
extern "C" __global__ void flash_register(
    float* out_BHLD, float* lse_BHL, const float* q_BHLD, const float* k_BHSD,
    const float* v_BHSD, float scale, int group, int H, int L, int S) {
    __shared__ float q_tile[TILE_L][Q_WIDTH];
    __shared__ float kv_tile[TILE_S][KV_WIDTH];
    float scores[ROWS][COLS], acc[ROWS][WIDTH], row_max[ROWS], row_sum[ROWS];
    const int b = blockIdx.y / H, h = blockIdx.y % H;
    const int lane = threadIdx.x, local_row = threadIdx.y * ROWS;
    const int row0 = blockIdx.x * TILE_L, first_row = row0 + local_row;
    const int first_lane =
        (threadIdx.y * LANES + threadIdx.x) % 32 / LANES * LANES;
    const size_t kv_head = (size_t)b * (H / group) + h / group;
    const size_t row_of_head = (size_t)blockIdx.y * L;
    const float* k_SD = k_BHSD + kv_head * S * D;
    const float* v_SD = v_BHSD + kv_head * S * D_V;

    load_rows<D_PADDED, Q_WIDTH, TILE_L>(q_tile, q_BHLD + row_of_head * D, row0,
                                         L, D, scale);
    for (int i = 0; i < ROWS; i++) {
        row_max[i] = NOTHING;
        row_sum[i] = 0.0f;
        for (int c = 0; c < WIDTH; c++) acc[i][c] = 0.0f;
    }
    const int visible = IS_CAUSAL ? min(min(S, L), row0 + TILE_L) : S;

    for (int s0 = 0; s0 < visible; s0 += TILE_S) {
        // 1. Load: all threads bring the keys.
        load_rows<D_PADDED, KV_WIDTH, TILE_S>(kv_tile, k_SD, s0, S, D, 1.0f);
        __syncthreads();  // queries and keys are there before a product

        // 2. Compute: the values take the place of the keys.
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++) scores[i][j] = 0.0f;
        for (int d0 = 0; d0 < D; d0 += UNROLLED) {
            for (int e = 0; e < UNROLLED; e++) {
                float k[COLS];
                for (int j = 0; j < COLS; j++)
                    k[j] = kv_tile[lane + j * LANES][d0 + e];
                for (int i = 0; i < ROWS; i++) {
                    const float q = q_tile[local_row + i][d0 + e];
                    for (int j = 0; j < COLS; j++) scores[i][j] += q * k[j];
                }
            }
        }
        __syncthreads();  // no key is overwritten that is still read
        load_rows<WIDTH * LANES, KV_WIDTH, TILE_S>(kv_tile, v_SD, s0, S, D_V,
                                                   1.0f);
        for (int i = 0; i < ROWS; i++) {
            const int row = first_row + i;
            float new_max = row_max[i];
            for (int j = 0; j < COLS; j++) {
                const int s = s0 + lane + j * LANES;
                const bool seen =
                    row < L && s < S && (!IS_CAUSAL || s <= row);
                if (!seen) scores[i][j] = NOTHING;
                new_max = fmaxf(new_max, scores[i][j]);
            }
            for (int bit = 0; bit < LANE_BITS; bit++) {
                new_max = fmaxf(
                    new_max, __shfl_xor_sync(EVERY_LANE, new_max, 1 << bit));
            }
            const float shift = new_max != NOTHING ? new_max : 0.0f;
            const float rescale = exp2f((row_max[i] - shift) * LOG2E);
            row_max[i] = new_max;
            row_sum[i] *= rescale;
            for (int c = 0; c < WIDTH; c++) acc[i][c] *= rescale;
            for (int j = 0; j < COLS; j++) {
                const float weight = exp2f((scores[i][j] - shift) * LOG2E);
                scores[i][j] = weight;
                row_sum[i] += weight;  // of this thread's keys
            }
        }
        __syncthreads();  // all values are there before they are mixed
        for (int owner = 0; owner < LANES; owner++) {
            for (int j = 0; j < COLS; j++) {
                float v[WIDTH];
                for (int c = 0; c < WIDTH; c++)
                    v[c] = kv_tile[owner + j * LANES][lane + c * LANES];
                for (int i = 0; i < ROWS; i++) {
                    const float weight = __shfl_sync(EVERY_LANE, scores[i][j],
                                                     first_lane + owner);
                    for (int c = 0; c < WIDTH; c++) acc[i][c] += weight * v[c];
                }
            }
        }
        __syncthreads();  // no value is overwritten that is still read
    }

    // 3. Store: 16 threads add their sums and write; without keys 0 and -inf.
    for (int i = 0; i < ROWS; i++) {
        const int row = first_row + i;
        float total = row_sum[i];
        for (int bit = 0; bit < LANE_BITS; bit++)
            total += __shfl_xor_sync(EVERY_LANE, total, 1 << bit);
        const bool seen = total != 0.0f;
        for (int c = 0; c < WIDTH; c++) {
            const int d = lane + c * LANES;
            if (row < L && d < D_V)
                out_BHLD[(row_of_head + row) * D_V + d] =
                    seen ? acc[i][c] / total : 0.0f;
        }
        if (row < L && lane == 0)
            lse_BHL[row_of_head + row] =
                seen ? row_max[i] + logf(total) : row_max[i];
    }
}
