// What strips need beside the digits' S-layers: contrast, C-cells, the head.
//
// The columns of an S-layer are dealt to *tiles* as large as a digit's map; the layer before lies in tiles
// as large as a digit's map with its border, which overlap: each has all that the S-cells of a tile see. So
// the S-layers are the digits' kernels over a batch of tiles, of strips of any widths. US4 sees every second
// column of UC3: there are tiles of even and of odd columns. Who looks beyond a map's ends sees 0.
//
// THREADS of a block. places (tiles, 4): where the strip's source begins, column of the tile's first cell,
// columns of the source's map, of its own.
#include "platform.cuh"
#ifdef SILENCE
// U0 of a strip is (INPUT, columns). CELLS rows of UG; WIDTH, BORDER of its tiles; ROWS of cells a block.
// Sums are float64, so that |y| <= SILENCE is decided as in the equations.
#define TAPS 7
#define HALF 4
#define SEEN (WIDTH + TAPS - 1)
KERNEL(THREADS) line_contrast(const float* u0, map_t* ug, const double* weights, const int* places) {
    DYNAMIC_SHARED(memory);
    float* seen = (float*)memory;
    start_next();
    double w[HALF * HALF];  // the upper left quarter of the kernel
    UNROLL for (int i = 0; i < HALF * HALF; i++) w[i] = weights[i];
    const int* place = places + 4 * blockIdx.y;
    const int left = place[1], columns = place[2], top = blockIdx.x * ROWS;
    wait_for_previous();
    for (int i = threadIdx.x; i < (ROWS + TAPS - 1) * SEEN; i += THREADS) {
        const u32 row = top - (TAPS - 1) + i / SEEN, column = left - (TAPS - 1) + i % SEEN;
        seen[i] = row < INPUT && column < (u32)columns ? u0[place[0] + row * columns + column] : 0.0f;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * WIDTH && top + i / WIDTH < CELLS; i += THREADS) {
        const int x = i % WIDTH;
        double sum = 0.0;
        UNROLL for (int t = 0; t < TAPS * TAPS; t++) {
            const int a = t / TAPS, b = t % TAPS;
            sum += w[(a < HALF ? a : TAPS - 1 - a) * HALF + (b < HALF ? b : TAPS - 1 - b)] *
                   (double)seen[(i / WIDTH + a) * SEEN + x + b];
        }
        const bool silent = fabs(sum) <= SILENCE || left + x < 0 || left + x >= place[3];
        const float y = silent ? 0.0f : (float)sum;
        map_t* cell = ug + (((u64)blockIdx.y * WIDTH + top + i / WIDTH + BORDER) * WIDTH + x) * 2;
        cell[0] = to_map(fmaxf(y, 0.0f)), cell[1] = to_map(fmaxf(-y, 0.0f));
    }
}
#endif

#ifdef RANK
// SIZE rows and columns of a tile of US, CHANNELS stored; OUT rows of UC; WIDTH, BORDER, UC_CHANNELS of its
// tiles; a_C, TAPS x TAPS, is the sum of RANK outer products; FIRST row (column) that the first tap of the
// first cell sees; STRIDE across (2 down); PSI 0 sqrt, 1 ratio; ROWS of cells a block, SLAB channels.
// Down the columns, then along the rows; so are the weights, 2 TAPS for each outer product. What a tile's
// neighbouring cells see begins two columns apart: at stride 1 they are every second cell.
#define SEEN (2 * (WIDTH - 1) + TAPS)
KERNEL(THREADS) line_c(const map_t* us, map_t* uc, const float* weights, const int* places) {
    DYNAMIC_SHARED(memory);
    float *held = (float*)memory, *w = held + RANK * ROWS * SEEN * SLAB;
    start_next();
    for (int i = threadIdx.x; i < RANK * 2 * TAPS; i += THREADS) w[i] = weights[i];
    const int* place = places + 4 * blockIdx.y;
    const int own = place[1], top = 2 * (int)(blockIdx.x * ROWS) + FIRST, channel = blockIdx.z * SLAB;
    wait_for_previous();
    __syncthreads();
    for (int item = threadIdx.x; item < SEEN * SLAB; item += THREADS) {
        const int x = STRIDE * own + FIRST + item / SLAB;
        float sum[RANK][ROWS] = {};
        if ((u32)x < (u32)place[2]) {
            const u64 tile = place[0] + x / SIZE;
            const map_t* from = us + (tile * SIZE * SIZE + x % SIZE) * CHANNELS + channel + item % SLAB;
            UNROLL for (int y = 0; y < 2 * (ROWS - 1) + TAPS; y++) {
                const float u = (u32)(top + y) < SIZE ? of_map(from[(top + y) * SIZE * CHANNELS]) : 0.0f;
                UNROLL for (int r = 0; r < RANK; r++)
                    UNROLL for (int n = 0; n < ROWS; n++)
                        if (y >= 2 * n && y - 2 * n < TAPS)
                            sum[r][n] = fmaf(w[2 * r * TAPS + y - 2 * n], u, sum[r][n]);
            }
        }
        UNROLL for (int r = 0; r < RANK; r++)
            UNROLL for (int n = 0; n < ROWS; n++) held[(r * ROWS + n) * SEEN * SLAB + item] = sum[r][n];
    }
    __syncthreads();
    for (int item = threadIdx.x; item < ROWS * WIDTH * SLAB; item += THREADS) {
        const int cell = item / SLAB % WIDTH, n = item / (SLAB * WIDTH), row = blockIdx.x * ROWS + n;
        const int x = own + 2 / STRIDE * cell;
        if (row >= OUT) break;
        const float* seen = held + (n * SEEN + 2 * cell) * SLAB + item % SLAB;
        float sum = 0.0f;
        if ((u32)x < (u32)place[3])
            UNROLL for (int r = 0; r < RANK; r++)
                UNROLL for (int j = 0; j < TAPS; j++)
                    sum = fmaf(w[(2 * r + 1) * TAPS + j], seen[(r * ROWS * SEEN + j) * SLAB], sum);
        uc[(((u64)blockIdx.y * WIDTH + row + BORDER) * WIDTH + cell) * UC_CHANNELS + channel + item % SLAB] =
            to_map(sum <= 0.0f ? 0.0f : PSI == 0 ? sqrtf(sum) : sum / (1.0f + sum));
    }
}
#endif

// The head: columns of all strips, two of silence between them; places (columns, 4): tile of US4, counted
// from 1 (0: silence), and column in it.
#ifdef PLANES
// SIZE rows and columns of a tile of US4, CHANNELS stored, PLANES there are; SEEN, LAST channels of `seen`, `last`.
KERNEL(THREADS) line_peaks(const float* us4, const int* places, float* seen, float* last) {
    start_next();
    wait_for_previous();
    const int n = blockIdx.x, tile = places[4 * n] - 1, column = places[4 * n + 1];
    for (int k = threadIdx.x; k < PLANES; k += THREADS) {
        float most = 0.0f, sum = 0.0f;
        UNROLL for (int row = 0; row < SIZE; row++) {
            const u64 cell = ((u64)tile * SIZE + row) * SIZE + column;
            const float x = tile < 0 ? 0.0f : us4[cell * CHANNELS + k];
            most = fmaxf(most, x), sum += x;
        }
        seen[n * SEEN + k] = last[n * LAST + k] = most;
        seen[n * SEEN + PLANES + k] = sum / SIZE;
    }
}
#endif
#ifdef EACH
// in (count, IN) -> channels FROM .. FROM + OUT - 1 of out (count, LAST), over TAPS columns; RELU or not.
// PARTS threads share a channel's sums: each has some inputs, four neighbours a time, of all taps, and their
// weights (taps x inputs / 4, OUT, 4), which come before `in` is there, in registers. It goes along the columns,
// reads an input once and adds it to the sums of all columns that see it. A block makes EACH columns of LANES
// channels, then the next; IN is a multiple of 4.
#define PARTS (THREADS / LANES)
#define QUADS (IN / 4)
#define OWN ((QUADS + PARTS - 1) / PARTS)
#define BOUNDS THREADS, 1  // registers for all of a thread's weights
KERNEL(BOUNDS) line_convolution(const float* in, const float* weights, const float* bias,
                                const int* places, float* out, int count) {
    DYNAMIC_SHARED(memory);
    float4* seen = (float4*)memory;  // (EACH + TAPS - 1, IN)
    float* sums = (float*)(seen + (EACH + TAPS - 1) * QUADS);
    start_next();
    const int lane = threadIdx.x % LANES, part = threadIdx.x / LANES, channel = blockIdx.y * LANES + lane;
    float4 w[OWN][TAPS];
    UNROLL for (int q = 0; q < OWN; q++)
        UNROLL for (int t = 0; t < TAPS; t++)
            w[q][t] = ((const float4*)weights)[(t * QUADS + min(part + q * PARTS, QUADS - 1)) * OUT +
                                               min(channel, OUT - 1)];
    wait_for_previous();
    NO_UNROLL for (int first = blockIdx.x * EACH; first < count; first += gridDim.x * EACH) {
        for (int i = threadIdx.x; i < (EACH + TAPS - 1) * QUADS; i += THREADS) {
            const int column = first - TAPS / 2 + i / QUADS;
            seen[i] = column >= 0 && column < count ? ((const float4*)in)[column * QUADS + i % QUADS]
                                                    : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        __syncthreads();
        float sum[TAPS] = {};  // of the column that ends at m, and of those behind it
        NO_UNROLL for (int m = 0; m < EACH + TAPS - 1; m++) {
            UNROLL for (int q = 0; q < OWN; q++) {
                if (part + q * PARTS >= QUADS) break;
                const float4 u = seen[m * QUADS + part + q * PARTS];
                UNROLL for (int t = 0; t < TAPS; t++) {
                    float& s = sum[TAPS - 1 - t];
                    s = fmaf(w[q][t].x, u.x, fmaf(w[q][t].y, u.y, fmaf(w[q][t].z, u.z, fmaf(w[q][t].w, u.w, s))));
                }
            }
            if (m >= TAPS - 1) sums[(m - TAPS + 1) * THREADS + threadIdx.x] = sum[0];
            UNROLL for (int t = 0; t < TAPS - 1; t++) sum[t] = sum[t + 1];
            sum[TAPS - 1] = 0.0f;
        }
        __syncthreads();
        for (int n = part; n < EACH && first + n < count; n += PARTS) {
            if (channel >= OUT) break;
            float z = bias[channel];
            UNROLL for (int k = 0; k < PARTS; k++) z += sums[n * THREADS + k * LANES + lane];
            if ((RELU && z < 0.0f) || places[4 * (first + n)] == 0) z = 0.0f;
            out[(first + n) * LAST + FROM + channel] = z;
        }
    }
}
#endif
