// S-cells as an implicit matrix product on tensor cores, with the whole of equation 1 around it.
//
// Rows of the product are cells, columns are cell-planes, and the inner dimension runs over the
// window: ky, kx, channel. A block keeps the input of its cells in shared memory once; a window is
// gathered from there by ldmatrix, whose eight row addresses may be anything, so nothing is copied
// out (no im2col). The address of a row's values for one tap is the cell's own address plus an
// offset that all cells share. Weights are packed offline in the order in which a warp's lanes hold
// them and stream through shared memory in stages of some taps.
//
// Ladder of versions (what each added):
//   1  one digit a block, all planes; weights in shared memory, two stages, copied asynchronously.
//   2  inhibition from the input that lies in shared memory anyway: planes are summed first, then
//      one kernel of weights c; division, threshold and rectification in the epilogue, so that
//      neither v nor the excitation is ever written.
//   3  columns dealt to the tiles so that a lane ends with four neighbouring planes: 8 and 16 bytes
//      a store.
//   4  for few digits: bands of rows, slices of planes, and the sum over the window split over
//      warps (WK, summed in shared memory) and over blocks (KSPLIT, summed in a fixed order by the
//      block that comes last), so that eight digits keep the whole GPU busy.
//   5  MODE 3: float32 results from half operands. Each operand is the sum of two halves (22
//      bits); the three products that matter are summed, the small ones first.
//
// Operands: MODE 0 half, 1 bfloat16, 2 TF32, 3 float32 as two halves. Sums are float32.
#include "platform.cuh"

// KSIZE kernel; IN_W, IN_C width (border included) and channels of the input; OUT cells a side;
// OUT_C channels stored; OUT_MAP type of the output map; GROUP digits and ROWS rows of cells a
// block; WM x WN x WK warps; MT x NT tiles of 16x8 a warp; PASSES over the block's cells; KSPLIT
// blocks share a window; STAGE_TAPS taps a stage of weights.
#define WIDE (MODE == 2)
#define SPLIT_HALF (MODE == 3)
#define PAIR (IN_C == 2)  // UG: a row of the window, on and off side by side, is one run of values
#define CELL_BYTES (IN_C * (WIDE ? 4 : 2))
// 16 bytes between cells keep the eight rows of an ldmatrix in different banks
#define PITCH (PAIR ? CELL_BYTES : CELL_BYTES + 16)
#define KY_PER (KSIZE / KSPLIT)
#define IN_ROWS (ROWS + KY_PER - 1)
#define PIXELS (GROUP * IN_ROWS * IN_W)
#define CELLS (GROUP * ROWS * OUT)
#define BANDS ((OUT + ROWS - 1) / ROWS)
#define TAPS (PAIR ? KY_PER : KY_PER * KSIZE)
#define STEPS (PAIR ? (WIDE ? 2 : 1) : CELL_BYTES / 32)  // products of depth 16 (8: TF32) a tap
#define STAGES ((TAPS + STAGE_TAPS - 1) / STAGE_TAPS)
#define BUFFERS (STAGES > 1 ? 2 : 1)
#define WARPS (WM * WN * WK)
#define THREADS (WARPS * 32)
#define SLICE_WORDS (NT * 64 * (SPLIT_HALF ? 2 : 1))  // weights of one step for one warp's planes
#define TAP_WORDS (STEPS * WN * SLICE_WORDS)
#define ACCUMULATORS (MT * NT * 4)
enum { unroll_taps = UNROLL_TAPS };  // a pragma takes a constant, not a macro
#define INPUT_BYTES ((PIXELS * PITCH + (PAIR ? 8 * CELL_BYTES : 0) + 15) / 16 * 16)

#if OUT_MAP == 0
typedef float out_t;
#else
typedef u16 out_t;
#endif

DEVICE u32 pair_of(float first, float second) {
#if OUT_MAP == 2
    return (u32)bf16_of(first) | (u32)bf16_of(second) << 16;
#else
    return half2_of(first, second);
#endif
}

// Square of the pair (or single value) that 32 bits hold.
DEVICE float square(u32 bits) {
#if MODE == 0 || MODE == 3
    float2 x = floats_of_half2(bits);
    return x.x * x.x + x.y * x.y;
#elif MODE == 1
    float a = __uint_as_float(bits << 16), b = __uint_as_float(bits & 0xffff0000u);
    return a * a + b * b;
#else
    float a = __uint_as_float(bits);
    return a * a;
#endif
}

DEVICE void product(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if MODE == 1
    mma_bf16(d, a, b0, b1);
#elif MODE == 2
    mma_tf32(d, a, b0, b1);
#else
    mma_half(d, a, b0, b1);
#endif
}

// Bring the input of the block's cells into shared memory; rows beyond the map become 0.
DEVICE void load_input(u8* input, const map_t* maps, int digit, int batch, int row) {
    for (int g = 0; g < GROUP; g++) {
        if (digit + g >= batch) break;
        const map_t* from = maps + ((u64)(digit + g) * IN_W + row) * IN_W * IN_C;
        u8* to = input + g * IN_ROWS * IN_W * PITCH;
        int rows = min(IN_ROWS, IN_W - row);
#if PAIR
        for (int i = threadIdx.x; i < IN_ROWS * IN_W; i += THREADS) {
            bool inside = i < rows * IN_W;
#if MODE == 2
            float2 pair = inside ? ((const float2*)from)[i] : make_float2(0.0f, 0.0f);
            ((uint2*)to)[i] = make_uint2(tf32_of(pair.x), tf32_of(pair.y));
#elif MODE == 3
            float2 pair = inside ? ((const float2*)from)[i] : make_float2(0.0f, 0.0f);
            u32 high = half2_of(pair.x, pair.y);
            float2 held = floats_of_half2(high);
            ((u32*)to)[i] = high;
            ((u32*)(to + INPUT_BYTES))[i] = half2_of(pair.x - held.x, pair.y - held.y);
#else
            ((u32*)to)[i] = inside ? ((const u32*)from)[i] : 0u;
#endif
        }
#elif MODE <= 1
        const int parts = IN_C / 8;
        for (int i = threadIdx.x; i < IN_ROWS * IN_W * parts; i += THREADS) {
            u8* at = to + i / parts * PITCH + i % parts * 16;
            if (i < rows * IN_W * parts) copy_async_16(at, from + i * 8);
            else *(uint4*)at = make_uint4(0, 0, 0, 0);
        }
#else
        const int parts = IN_C / 4;
        for (int i = threadIdx.x; i < IN_ROWS * IN_W * parts; i += THREADS) {
            bool inside = i < rows * IN_W * parts;
            float4 u = inside ? ((const float4*)from)[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#if MODE == 2
            u8* at = to + i / parts * PITCH + i % parts * 16;
            *(uint4*)at = make_uint4(tf32_of(u.x), tf32_of(u.y), tf32_of(u.z), tf32_of(u.w));
#else
            u8* at = to + i / parts * PITCH + i % parts * 8;
            u32 xy = half2_of(u.x, u.y), zw = half2_of(u.z, u.w);
            float2 a = floats_of_half2(xy), b = floats_of_half2(zw);
            *(uint2*)at = make_uint2(xy, zw);
            *(uint2*)(at + INPUT_BYTES) =
                make_uint2(half2_of(u.x - a.x, u.y - a.y), half2_of(u.z - b.x, u.w - b.y));
#endif
        }
#endif
    }
#if PAIR  // windows of the last row read two cells beyond it, with weights 0
    if (threadIdx.x < 8 * CELL_BYTES / 4) {
        ((u32*)(input + PIXELS * PITCH))[threadIdx.x] = 0;
        if (SPLIT_HALF) ((u32*)(input + INPUT_BYTES + PIXELS * PITCH))[threadIdx.x] = 0;
    }
#endif
}

// Sum over planes of u^2 at every input cell.
DEVICE void sum_planes(float* energy, const u8* input) {
    for (int i = threadIdx.x; i < PIXELS; i += THREADS) {
        const u8* at = input + i * PITCH;
        float sum = 0.0f;
#if SPLIT_HALF
        UNROLL for (int word = 0; word < CELL_BYTES / 4; word++) {
            float2 high = floats_of_half2(((const u32*)at)[word]);
            float2 low = floats_of_half2(((const u32*)(at + INPUT_BYTES))[word]);
            float x = high.x + low.x, y = high.y + low.y;
            sum += x * x + y * y;
        }
#elif PAIR
        UNROLL for (int word = 0; word < CELL_BYTES / 4; word++) sum += square(((const u32*)at)[word]);
#else
        UNROLL for (int part = 0; part < CELL_BYTES / 16; part++) {
            uint4 u = ((const uint4*)at)[part];
            sum += square(u.x) + square(u.y) + square(u.z) + square(u.w);
        }
#endif
        energy[i] = sum;
    }
}

// Where a cell's window begins, in input cells.
DEVICE int window_of(int cell) {
    int g = cell / (ROWS * OUT), rest = cell % (ROWS * OUT);
    return (g * IN_ROWS + rest / OUT) * IN_W + rest % OUT;
}

// v^2 of every cell (of its part of the window, where blocks share it).
DEVICE void inhibit(float* v2, const float* energy, const float* c) {
    for (int cell = threadIdx.x; cell < CELLS; cell += THREADS) {
        const float* from = energy + window_of(cell);
        float sum = 0.0f;
        NO_UNROLL for (int ky = 0; ky < KY_PER; ky++) {
            UNROLL for (int kx = 0; kx < KSIZE; kx++)
                sum += c[ky * KSIZE + kx] * from[ky * IN_W + kx];
        }
        v2[cell] = sum;
    }
}

DEVICE void load_stage(u32* to, const u32* weights, int stage) {
    int taps = min(STAGE_TAPS, TAPS - stage * STAGE_TAPS);
    const u32* from = weights + stage * STAGE_TAPS * TAP_WORDS;
    for (int i = threadIdx.x; i < taps * TAP_WORDS / 4; i += THREADS)
        copy_async_16(to + i * 4, from + i * 4);
}

// The A operand of one tile of 16 cells.
DEVICE void load_cells(u32 (&a)[4], const u8* from, const u8* from_lower) {
#if PAIR && MODE == 2
    uint2 upper = *(const uint2*)from, lower = *(const uint2*)from_lower;
    a[0] = upper.x, a[1] = lower.x, a[2] = upper.y, a[3] = lower.y;
#elif PAIR
    a[0] = *(const u32*)from, a[1] = *(const u32*)from_lower;
    a[2] = *(const u32*)(from + 4 * CELL_BYTES), a[3] = *(const u32*)(from_lower + 4 * CELL_BYTES);
#else
    load_matrix_x4(a, from);
#endif
}

// The B operands of one step: NT tiles of 8 planes.
DEVICE void load_weights(u32 (&b)[NT][2], const u32* from, int lane) {
    UNROLL for (int p = 0; p < NT / 2; p++) {
        uint4 w = ((const uint4*)from)[p * 32 + lane];
        b[2 * p][0] = w.x, b[2 * p][1] = w.y, b[2 * p + 1][0] = w.z, b[2 * p + 1][1] = w.w;
    }
    if (NT % 2) {
        uint2 w = ((const uint2*)from)[NT / 2 * 64 + lane];
        b[NT - 1][0] = w.x, b[NT - 1][1] = w.y;
    }
}

DEVICE void store(out_t* out, const float (&x)[4]) {
#if OUT_MAP == 0
    *(float4*)out = make_float4(x[0], x[1], x[2], x[3]);
#else
    *(uint2*)out = make_uint2(pair_of(x[0], x[1]), pair_of(x[2], x[3]));
#endif
}

DEVICE void store_two(out_t* out, float first, float second) {
#if OUT_MAP == 0
    *(float2*)out = make_float2(first, second);
#else
    *(u32*)out = pair_of(first, second);
#endif
}

// maps (batch, IN_W, IN_W, IN_C); weights packed by neocog/cuda/s_tensor.py; c (KSIZE, KSIZE);
// silence (planes, padded); out (batch, OUT, OUT, OUT_C). partial and arrivals serve KSPLIT.
// Grid: groups of digits x BANDS, slices of planes, KSPLIT.
KERNEL(THREADS)
s_tensor(const map_t* __restrict__ maps, const u32* __restrict__ weights,
         const float* __restrict__ c, const float* __restrict__ silence, out_t* __restrict__ out,
         float* __restrict__ partial, u32* __restrict__ arrivals, int batch, float theta,
         float scale) {
    DYNAMIC_SHARED(shared);
    u8* const input = shared;
    u32* const stages = (u32*)(input + INPUT_BYTES * (SPLIT_HALF ? 2 : 1));
    float* const v2 = (float*)(stages + BUFFERS * STAGE_TAPS * TAP_WORDS);
    float* const energy = v2 + (CELLS + 3) / 4 * 4;
    float* const c_shared = energy + (PIXELS + 3) / 4 * 4;

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int wm = warp % WM, wn = warp / WM % WN, wk = warp / (WM * WN);
    const int digit = blockIdx.x / BANDS * GROUP, band = blockIdx.x % BANDS;
    const int first_row = band * ROWS, ky0 = blockIdx.z * KY_PER;
    weights += ((u64)blockIdx.y * KSPLIT + blockIdx.z) * TAPS * TAP_WORDS;

    start_next();
    load_stage(stages, weights, 0);
    copy_async_commit();
    for (int i = threadIdx.x; i < KY_PER * KSIZE; i += THREADS) c_shared[i] = c[ky0 * KSIZE + i];
    wait_for_previous();
    load_input(input, maps, digit, batch, first_row + ky0);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    sum_planes(energy, input);
    __syncthreads();
    inhibit(v2, energy, c_shared);

    NO_UNROLL for (int pass = 0; pass < PASSES; pass++) {
        float sum[MT][NT][4];
        UNROLL for (int m = 0; m < MT; m++)
            UNROLL for (int n = 0; n < NT; n++)
                UNROLL for (int i = 0; i < 4; i++) sum[m][n][i] = 0.0f;
        const u8* rows[MT];  // where this lane's share of a tile's 16 cells begins
        const int first_cell = (pass * WM + wm) * MT * 16;
        int lower[MT];
        UNROLL for (int m = 0; m < MT; m++) {
            int row = first_cell + m * 16 + (PAIR ? lane / 4 : lane % 16);
            int window = window_of(min(row, CELLS - 1));
            rows[m] = input + window * PITCH + (PAIR ? lane % 4 * CELL_BYTES : lane / 16 * 16);
            lower[m] = PAIR ? (window_of(min(row + 8, CELLS - 1)) - window) * PITCH : 0;
        }
        NO_UNROLL for (int stage = 0; stage < STAGES; stage++) {
            const int turn = pass * STAGES + stage;
            if (STAGES > 1) {
                copy_async_wait<0>();
                __syncthreads();
                if (turn + 1 < PASSES * STAGES) {
                    load_stage(stages + (turn + 1) % 2 * (STAGE_TAPS * TAP_WORDS), weights,
                               (stage + 1) % STAGES);
                    copy_async_commit();
                }
            }
            const u32* tap_weights =
                stages + (STAGES > 1 ? turn % 2 : 0) * (STAGE_TAPS * TAP_WORDS) + wn * SLICE_WORDS;
            const int taps = min(STAGE_TAPS, TAPS - stage * STAGE_TAPS);
            _Pragma("unroll unroll_taps") for (int t = wk; t < taps; t += WK) {
                const int tap = stage * STAGE_TAPS + t;
                const int offset =
                    PAIR ? tap * IN_W * PITCH : (tap / KSIZE * IN_W + tap % KSIZE) * PITCH;
                UNROLL for (int step = 0; step < STEPS; step++) {
                    const u32* from = tap_weights + t * TAP_WORDS + step * (WN * SLICE_WORDS);
                    const int at = offset + step * (PAIR ? 4 * CELL_BYTES : 32);
                    u32 b[NT][2];
                    load_weights(b, from, lane);
#if SPLIT_HALF
                    u32 b_low[NT][2];
                    load_weights(b_low, from + NT * 64, lane);
#endif
                    UNROLL for (int m = 0; m < MT; m++) {
                        u32 a[4];
                        load_cells(a, rows[m] + at, rows[m] + lower[m] + at);
#if SPLIT_HALF
                        u32 a_low[4];
                        load_cells(a_low, rows[m] + INPUT_BYTES + at,
                                   rows[m] + INPUT_BYTES + lower[m] + at);
                        UNROLL for (int n = 0; n < NT; n++) {
                            product(sum[m][n], a_low, b[n][0], b[n][1]);
                            product(sum[m][n], a, b_low[n][0], b_low[n][1]);
                        }
#endif
                        UNROLL for (int n = 0; n < NT; n++) product(sum[m][n], a, b[n][0], b[n][1]);
                    }
                }
            }
        }
        __syncthreads();  // v2 is complete; with WK the input is read no more

#if WK > 1
        float* const others = (float*)shared;  // input and weights have done their work
        const int slot = ((wk - 1) * WM * WN + wn * WM + wm) * ACCUMULATORS;
        if (wk > 0) {
            UNROLL for (int m = 0; m < MT; m++)
                UNROLL for (int n = 0; n < NT; n++)
                    UNROLL for (int i = 0; i < 4; i++)
                        others[(slot + (m * NT + n) * 4 + i) * 32 + lane] = sum[m][n][i];
        }
        __syncthreads();
        if (wk == 0) {
            NO_UNROLL for (int other = 0; other < WK - 1; other++) {
                const float* from =
                    others + (other * WM * WN + wn * WM + wm) * ACCUMULATORS * 32 + lane;
                UNROLL for (int m = 0; m < MT; m++)
                    UNROLL for (int n = 0; n < NT; n++)
                        UNROLL for (int i = 0; i < 4; i++)
                            sum[m][n][i] += from[((m * NT + n) * 4 + i) * 32];
            }
        }
#endif

#if KSPLIT > 1
        // every block leaves its part; the last to come sums them in the order of the window
        __shared__ u32 came;
        const int tile = blockIdx.y * gridDim.x + blockIdx.x;
        const int part = ACCUMULATORS * WM * WN * 32 + (CELLS + 3) / 4 * 4;
        float* const mine = partial + ((u64)tile * KSPLIT + blockIdx.z) * part;
        const int place = (wn * WM + wm) * ACCUMULATORS * 32 + lane;
        if (wk == 0) {
            UNROLL for (int m = 0; m < MT; m++)
                UNROLL for (int n = 0; n < NT; n++)
                    UNROLL for (int i = 0; i < 4; i++)
                        mine[place + ((m * NT + n) * 4 + i) * 32] = sum[m][n][i];
        }
        for (int i = threadIdx.x; i < CELLS; i += THREADS)
            mine[ACCUMULATORS * WM * WN * 32 + i] = v2[i];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) came = atomicAdd(arrivals + tile, 1u);
        __syncthreads();
        if (came != KSPLIT - 1) return;
        __threadfence();
        const float* parts = partial + (u64)tile * KSPLIT * part;
        if (threadIdx.x == 0) arrivals[tile] = 0;
        for (int i = threadIdx.x; i < CELLS; i += THREADS) {
            float total = 0.0f;
            UNROLL for (int z = 0; z < KSPLIT; z++)
                total += __ldcg(parts + z * part + ACCUMULATORS * WM * WN * 32 + i);
            v2[i] = total;
        }
        if (wk == 0) {
            UNROLL for (int m = 0; m < MT; m++)
                UNROLL for (int n = 0; n < NT; n++)
                    UNROLL for (int i = 0; i < 4; i++) {
                        float total = 0.0f;
                        UNROLL for (int z = 0; z < KSPLIT; z++)
                            total += __ldcg(parts + z * part + place + ((m * NT + n) * 4 + i) * 32);
                        sum[m][n][i] = total;
                    }
        }
        __syncthreads();
#endif

        if (wk > 0) continue;
        const int slice = (blockIdx.y * WN + wn) * NT * 8, quad = lane % 4;
        UNROLL for (int m = 0; m < MT; m++) {
            UNROLL for (int half = 0; half < 2; half++) {
                const int cell = first_cell + m * 16 + half * 8 + lane / 4;
                const int g = cell / (ROWS * OUT), row = first_row + cell % (ROWS * OUT) / OUT;
                if (cell >= CELLS || digit + g >= batch || row >= OUT) continue;
                const float v = sqrtf(v2[cell]);
                out_t* const at =
                    out + (((u64)(digit + g) * OUT + row) * OUT + cell % OUT) * OUT_C;
                UNROLL for (int p = 0; p < NT / 2; p++) {
                    const int plane = slice + p * 16 + quad * 4;
                    if (plane >= OUT_C) continue;
                    const float4 s = *(const float4*)(silence + plane);
                    const float x[4] = {
                        s_response(sum[m][2 * p][half * 2] * scale, v, theta, s.x),
                        s_response(sum[m][2 * p][half * 2 + 1] * scale, v, theta, s.y),
                        s_response(sum[m][2 * p + 1][half * 2] * scale, v, theta, s.z),
                        s_response(sum[m][2 * p + 1][half * 2 + 1] * scale, v, theta, s.w)};
                    store(at + plane, x);
                }
                const int plane = slice + NT / 2 * 16 + quad * 2;
                if (NT % 2 && plane < OUT_C)
                    store_two(at + plane,
                              s_response(sum[m][NT - 1][half * 2] * scale, v, theta, silence[plane]),
                              s_response(sum[m][NT - 1][half * 2 + 1] * scale, v, theta,
                                         silence[plane + 1]));
            }
        }
    }
}
