// S-cells on CUDA cores, float32 throughout: max(0, sum a' u - theta' v) / (v + s).
//
// Ladder of versions (what each costs):
//   s_naive   one thread a cell and plane, excitation and inhibition gathered together from global
//             memory, as Ikeda et al. (2011) do: two loads for two multiply-adds, and the
//             inhibition done over for every plane.
//   s_direct  a block keeps the input of its cells in shared memory as float; a thread holds TM cells
//             x TN planes in registers, so that TM + TN loads serve TM TN multiply-adds (8 x 8: 16
//             multiply-adds a 16-byte load). Lanes along planes read neighbouring weights, lanes
//             along cells neighbouring pixels, whose pitch keeps them in different banks. Weights
//             stream through two stages of shared memory, copied while the other is used. v comes
//             from the input that lies there anyway: planes summed first, then one kernel c.
//             GROUP digits a block where layers are small; bands of rows, slices of planes and, in
//             a block, the channels shared out among WK sets of warps where digits are few.
#include "platform.cuh"

// KSIZE kernel; WIDTH of the input with its border, CHANNELS stored, DEPTH of them that are read; OUT
// cells a side; OUT_CHANNELS stored; OUT_MAP type of the output.
#define TAPS (KSIZE * KSIZE)

#if OUT_MAP == 0
typedef float out_t;
DEVICE out_t to_out(float value) { return value; }
#else
typedef map_t out_t;
DEVICE out_t to_out(float value) { return to_map(value); }
#endif

// weights (TAPS, DEPTH, OUT_CHANNELS), c (TAPS), silence (OUT_CHANNELS)
#ifdef NAIVE
KERNEL(256) s_naive(const map_t* u, const float* weights, const float* c, const float* silence,
                    out_t* us, float theta) {
    wait_for_previous();
    start_next();
    const u32 place = blockIdx.x * 256 + threadIdx.x;
    if (place >= OUT * OUT * OUT_CHANNELS) return;
    const int plane = place % OUT_CHANNELS, cell = place / OUT_CHANNELS;
    u += ((u64)blockIdx.z * WIDTH * WIDTH + cell / OUT * WIDTH + cell % OUT) * CHANNELS;
    float e = 0.0f, v = 0.0f;
    for (int tap = 0; tap < TAPS; tap++) {
        const map_t* at = u + (tap / KSIZE * WIDTH + tap % KSIZE) * CHANNELS;
        for (int k = 0; k < DEPTH; k++) {
            float value = of_map(at[k]);
            e = fmaf(weights[(tap * DEPTH + k) * OUT_CHANNELS + plane], value, e);
            v = fmaf(c[tap] * value, value, v);
        }
    }
    us[((u64)blockIdx.z * OUT * OUT + cell) * OUT_CHANNELS + plane] =
        to_out(s_response(e, sqrtf(v), theta, silence[plane]));
}
#else

// GROUP digits, ROWS of cells of each a block; LN lanes of a warp along planes, the others along
// cells; WM x WN x WK warps; TM cells x TN planes a thread; STAGE taps of weights at a time.
#define LM (32 / LN)
#define SET (WM * WN * 32)  // threads that share out the cells and planes
#define THREADS (SET * WK)
#define VECTOR (DEPTH % 4 == 0 ? 4 : 2)
#define PITCH (DEPTH % 8 == 0 ? DEPTH + 4 : DEPTH)  // floats a pixel
#define IN_ROWS (ROWS + KSIZE - 1)
#define PIXELS (GROUP * IN_ROWS * WIDTH)
#define CELLS (GROUP * ROWS * OUT)
#define BANDS ((OUT + ROWS - 1) / ROWS)
#define PLANES (WN * LN * TN)  // of a block
#define STAGE_FLOATS (STAGE * DEPTH * PLANES)
#define STAGES (TAPS / STAGE)
#define INPUT ((PIXELS * PITCH + 3) / 4 * 4)

struct alignas(VECTOR * sizeof(map_t)) Stored {
    map_t v[VECTOR];
};
struct alignas(VECTOR * 4) Values {
    float v[VECTOR];
};
struct alignas(16) Float4 {
    float v[4];
};
struct alignas(4 * sizeof(out_t)) Out4 {
    out_t v[4];
};

DEVICE void copy_stage(float* to, const float* weights, int stage) {
    const float* from = weights + ((u64)blockIdx.y * STAGES + stage) * STAGE_FLOATS;
    for (int i = threadIdx.x; i < STAGE_FLOATS / 4; i += THREADS)
        copy_async_16(to + 4 * i, from + 4 * i);
    copy_async_commit();
}

// The input of the block's cells, as float; silence beyond the layer and beyond the batch. Loads are
// never skipped, so that none waits for another; what lies outside is dropped afterwards.
DEVICE void fill(float* input, const map_t* u, int digit, int row, int batch) {
    const int parts = DEPTH / VECTOR, items = PIXELS * parts, in_flight = 8;
    for (int start = threadIdx.x; start < items; start += THREADS * in_flight) {
        Stored stored[in_flight];
        UNROLL for (int n = 0; n < in_flight; n++) {
            const int pixel = (start + n * THREADS) / parts, part = (start + n * THREADS) % parts;
            const int x = pixel % WIDTH, y = pixel / WIDTH % IN_ROWS + row;
            const int d = pixel / WIDTH / IN_ROWS + digit;
            const bool inside = y < WIDTH && d < batch;
            const u64 at = inside ? (((u64)d * WIDTH + y) * WIDTH + x) * CHANNELS : 0;
            stored[n] = *(const Stored*)(u + at + part * VECTOR);
            UNROLL for (int i = 0; i < VECTOR; i++) if (!inside) stored[n].v[i] = 0;
        }
        UNROLL for (int n = 0; n < in_flight; n++) {
            const int pixel = (start + n * THREADS) / parts, part = (start + n * THREADS) % parts;
            Values values;
            UNROLL for (int i = 0; i < VECTOR; i++) values.v[i] = of_map(stored[n].v[i]);
            if (pixel < PIXELS) *(Values*)(input + pixel * PITCH + part * VECTOR) = values;
        }
    }
}

// Where the first pixel of a cell's window lies.
DEVICE int pixel_of(int cell) {
    return (cell / (ROWS * OUT) * IN_ROWS + cell / OUT % ROWS) * WIDTH + cell % OUT;
}

DEVICE void inhibit(float* v, float* energy, const float* input, const float* c) {
    for (int pixel = threadIdx.x; pixel < PIXELS; pixel += THREADS) {
        float sum = 0.0f;
        for (int k = 0; k < DEPTH; k += VECTOR) {
            Values u = *(const Values*)(input + pixel * PITCH + k);
            UNROLL for (int i = 0; i < VECTOR; i++) sum = fmaf(u.v[i], u.v[i], sum);
        }
        energy[pixel] = sum;
    }
    __syncthreads();
    for (int cell = threadIdx.x; cell < CELLS; cell += THREADS) {
        const float* at = energy + pixel_of(cell);
        float sum = 0.0f;
        NO_UNROLL for (int i = 0; i < KSIZE; i++)
            UNROLL for (int j = 0; j < KSIZE; j++)
                sum = fmaf(c[i * KSIZE + j], at[i * WIDTH + j], sum);
        v[cell] = sqrtf(sum);
    }
}

// sum[i][n] += u[i] w[n] over the channels of one tap that this set of warps takes.
DEVICE void multiply_tap(float (&sum)[TM][TN], const float* input, const int (&at)[TM], int shift,
                         const float* w) {
    NO_UNROLL for (int k = threadIdx.x / SET * VECTOR; k < DEPTH; k += VECTOR * WK) {
        Values u[TM];
        UNROLL for (int i = 0; i < TM; i++) u[i] = *(const Values*)(input + at[i] + shift + k);
        UNROLL for (int step = 0; step < VECTOR; step++) {
            const float* row = w + (k + step) * PLANES;
            UNROLL for (int n = 0; n < TN; n += 4) {
                Float4 a = *(const Float4*)(row + n * LN);
                UNROLL for (int i = 0; i < TM; i++)
                    UNROLL for (int m = 0; m < 4; m++)
                        sum[i][n + m] = fmaf(u[i].v[step], a.v[m], sum[i][n + m]);
            }
        }
    }
}

// The sets' sums added up, in the order of the sets, by the first.
DEVICE void add_sets(float (&sum)[TM][TN], float* parts) {
    const int set = threadIdx.x / SET, thread = threadIdx.x % SET;
    __syncthreads();
    if (set)
        UNROLL for (int i = 0; i < TM; i++)
            UNROLL for (int n = 0; n < TN; n++)
                parts[((set - 1) * TM * TN + i * TN + n) * SET + thread] = sum[i][n];
    __syncthreads();
    if (set) return;
    UNROLL for (int i = 0; i < TM; i++)
        UNROLL for (int n = 0; n < TN; n++)
            for (int other = 0; other < WK - 1; other++)
                sum[i][n] += parts[(other * TM * TN + i * TN + n) * SET + thread];
}

// weights: slice of PLANES planes, TAPS, DEPTH, PLANES; silence: all slices.
KERNEL(THREADS) s_direct(const map_t* u, const float* weights, const float* c, const float* silence,
                         out_t* us, float theta, int batch) {
    DYNAMIC_SHARED(memory);
    float* v = (float*)memory;
    float* input = v + (CELLS + 3) / 4 * 4;
    float* stages = input + INPUT;
    float* energy = stages + (STAGES > 1 ? 2 : 1) * STAGE_FLOATS;
    copy_stage(stages, weights, 0);
    wait_for_previous();
    start_next();
    const int band = blockIdx.x % BANDS, digit = blockIdx.x / BANDS * GROUP;
    fill(input, u, digit, band * ROWS, batch);
    __syncthreads();
    inhibit(v, energy, input, c);

    const int lane = threadIdx.x % 32, warp = threadIdx.x % SET / 32;
    const int first_cell = warp / WN * (LM * TM) + lane / LN;
    const int first_plane = warp % WN * (LN * TN) + lane % LN * 4;
    int at[TM];
    UNROLL for (int i = 0; i < TM; i++) {
        const int cell = first_cell + i * LM;
        at[i] = cell < CELLS ? pixel_of(cell) * PITCH : 0;
    }
    float sum[TM][TN];
    UNROLL for (int i = 0; i < TM; i++)
        UNROLL for (int n = 0; n < TN; n++) sum[i][n] = 0.0f;
    NO_UNROLL for (int stage = 0; stage < STAGES; stage++) {
        copy_async_wait<0>();
        __syncthreads();
        if (stage + 1 < STAGES) copy_stage(stages + (stage + 1) % 2 * STAGE_FLOATS, weights, stage + 1);
        const float* w = stages + (STAGES > 1 ? stage % 2 : 0) * STAGE_FLOATS + first_plane;
        NO_UNROLL for (int i = 0; i < STAGE; i++) {
            const int tap = stage * STAGE + i;
            const int shift = (tap / KSIZE * WIDTH + tap % KSIZE) * PITCH;
            multiply_tap(sum, input, at, shift, w + i * DEPTH * PLANES);
        }
    }
    if (WK > 1) {
        add_sets(sum, input);
        if (threadIdx.x >= SET) return;
    }
    silence += blockIdx.y * PLANES;
    UNROLL for (int i = 0; i < TM; i++) {
        const int cell = first_cell + i * LM, d = digit + cell / (ROWS * OUT);
        const int row = band * ROWS + cell / OUT % ROWS, column = cell % OUT;
        if (cell >= CELLS || row >= OUT || d >= batch) continue;
        out_t* to = us + (((u64)d * OUT + row) * OUT + column) * OUT_CHANNELS;
        UNROLL for (int n = 0; n < TN; n += 4) {
            const int plane = first_plane + n * LN;
            if (blockIdx.y * PLANES + plane >= OUT_CHANNELS) continue;
            Out4 out;
            UNROLL for (int m = 0; m < 4; m++)
                out.v[m] = to_out(s_response(sum[i][n + m], v[cell], theta, silence[plane + m]));
            *(Out4*)(to + blockIdx.y * PLANES + plane) = out;
        }
    }
}
#endif
