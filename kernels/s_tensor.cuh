// The parts of s_tensor.cu: sizes, loading, inhibition, storing.
#ifndef NEOCOG_S_TENSOR_CUH
#define NEOCOG_S_TENSOR_CUH
#include "wgmma.cuh"

// KSIZE kernel; IN_W, IN_C width (border included) and channels of the input; OUT cells a side;
// OUT_C channels stored; OUT_MAP type of the output map; GROUP digits and ROWS rows of cells a
// block; WM x WN x WK warps; MT x NT tiles of 16x8 a warp; KSPLIT blocks share a window, CLUSTER 1
// where these are a cluster; CHUNKS parts of the channels, brought one after another; STAGE_TAPS taps
// a stage of weights; DEPTH steps of operands a warp holds;
// COMPACT 1 where only cells that may respond are computed; WGMMA 1 where a warpgroup of four warps
// computes tiles of 64 cells (WM then counts warps, a multiple of 4).
#define SPLIT_HALF (MODE == 3)
#define PARTS (SPLIT_HALF ? 2 : 1)
#define PAIR (IN_C == 2)  // UG: a row of the window, on and off side by side, is one run of values
#ifndef CHUNKS
#define CHUNKS 1
#endif
#define CHUNK (IN_C / CHUNKS)
#define CELL_BYTES (CHUNK * 2)
// Channels that end in half a step of the product: two neighbouring taps count as one, since their
// channels follow each other and fill whole steps. Such cells need no gap either.
#define JOINED (!PAIR && CHUNK % 16 != 0)
#define JOIN (JOINED ? 2 : 1)
// 16 bytes between cells keep the eight rows of an ldmatrix in different banks
#define PITCH (PAIR || JOINED ? CELL_BYTES : CELL_BYTES + 16)
#define UNIT (PAIR ? 2 : SPLIT_HALF ? 4 : 8)  // channels that one thread loads at a time
#define PARTS_OF_CELL (CHUNK / UNIT)
#define KY_PER (KSIZE / KSPLIT)
#define IN_ROWS (ROWS + KY_PER - 1)
#define PIXELS (GROUP * IN_ROWS * IN_W)
#define CELLS (GROUP * ROWS * OUT)
#define BANDS ((OUT + ROWS - 1) / ROWS)
#define TAPS (PAIR ? KY_PER : KY_PER * KSIZE / JOIN)
#define STEPS (PAIR ? 1 : CELL_BYTES * JOIN / 32)  // products of depth 16 a tap
#define STAGES ((TAPS + STAGE_TAPS - 1) / STAGE_TAPS)  // of a chunk
#define ALL_STAGES (CHUNKS * STAGES)
#define WITHIN_CHUNK(stage) (CHUNKS > 1 ? (stage) % STAGES : (stage))
#define WARPS (WM * WN * WK)
#define THREADS (WARPS * 32)
#define BOUNDS THREADS, 1  // registers as many as are of use
#define SLICE_WORDS (NT * 64 * (SPLIT_HALF ? 2 : 1))  // weights of one step for one warp's planes
#define TAP_WORDS (STEPS * WN * SLICE_WORDS)
#define SPREAD (WK > 1 || KSPLIT > 1)  // more than one warp has a part of a window
#ifdef NEOCOG_EMULATED  // blocks run one after another: KSPLIT goes through global memory
#undef CLUSTER
#define CLUSTER 0
#endif
#if CLUSTER
#define CLUSTERED __cluster_dims__(1, 1, KSPLIT)
#define PART_OF(z) in_block(own, z)  // what block z has summed
#define LOAD_PART(p) (*(p))
#else
#define CLUSTERED
#define PART_OF(z) (own + ((z) - (int)blockIdx.z) * part)
#define LOAD_PART(p) __ldcg(p)
#endif
#define HELD (PAIR && !WGMMA)
#ifndef COMPACT
#define COMPACT 0
#endif
#define BOUNDED (COMPACT && !PAIR)  // US1 hears two planes: its bound costs what it saves
#define FLUSH SPLIT_HALF
#define FLUSH_TURNS (DEPTH > 6 ? 2 : 12 / DEPTH / 2 * 2)  // of DEPTH steps, three products each
#define INPUT_BYTES ((PIXELS * PITCH + (PAIR ? 8 * CELL_BYTES : 0) + 15) / 16 * 16)

static_assert(!JOINED || KSIZE % 2 == 0, "pairs of taps stay in a row of the window");
static_assert(CHUNKS == 1 || (!COMPACT && KSPLIT == 1 && CELLS <= WM * MT * 16 && !JOINED),
              "chunks: all cells in one pass, all of the window in one block");

#if OUT_MAP == 0
typedef float out_t;
#else
typedef u16 out_t;
#endif

// Square of the pair that 32 bits hold.
DEVICE float square(u32 bits) {
    float2 x = floats_of_half2(bits);
    return x.x * x.x + x.y * x.y;
}

#if SPLIT_HALF
// Write one part of the input, as operands: 16 bytes of float32 maps (PAIR: 8).
#if PAIR
typedef float2 part_t;
#else
typedef float4 part_t;
#endif
DEVICE void put(u8* to, int i, part_t u) {
#if PAIR
    const u32 high = half2_of(u.x, u.y);
    const float2 held = floats_of_half2(high);
    ((u32*)to)[i] = high;
    ((u32*)(to + INPUT_BYTES))[i] = half2_of(u.x - held.x, u.y - held.y);
#else
    u8* at = to + i / (CHUNK / 4) * PITCH + i % (CHUNK / 4) * 8;
    const u32 xy = half2_of(u.x, u.y), zw = half2_of(u.z, u.w);
    const float2 a = floats_of_half2(xy), b = floats_of_half2(zw);
    *(uint2*)at = make_uint2(xy, zw);
    *(uint2*)(at + INPUT_BYTES) =
        make_uint2(half2_of(u.x - a.x, u.y - a.y), half2_of(u.z - b.x, u.w - b.y));
#endif
}
#endif

// Which unit of the map is the i-th of a chunk's.
DEVICE int unit_of(int i) {
    return CHUNKS > 1 ? i / PARTS_OF_CELL * (IN_C / UNIT) + i % PARTS_OF_CELL : i;
}

// Bring the input of the block's cells into shared memory; rows beyond the map become 0.
DEVICE void load_input(u8* input, const map_t* maps, int digit, int batch, int row, int chunk) {
    const int count = IN_ROWS * IN_W * PARTS_OF_CELL;
    const int inside = min(IN_ROWS, IN_W - row) * IN_W * PARTS_OF_CELL;
    NO_UNROLL for (int g = 0; g < GROUP; g++) {
        if (digit + g >= batch) break;
        const map_t* from = maps + ((u64)(digit + g) * IN_W + row) * IN_W * IN_C + chunk * CHUNK;
        u8* to = input + g * IN_ROWS * IN_W * PITCH;
#if !SPLIT_HALF
        NO_UNROLL for (int i = threadIdx.x; i < count; i += THREADS) {
#if PAIR
            u8* at = to + i * 4;
            if (i < inside) copy_async_4(at, from + i * 2);
            else *(u32*)at = 0;
#else
            u8* at = to + i / PARTS_OF_CELL * PITCH + i % PARTS_OF_CELL * 16;
            if (i < inside) copy_async_16(at, from + unit_of(i) * 8);
            else *(uint4*)at = make_uint4(0, 0, 0, 0);
#endif
        }
#else
        // eight loads are under way before the first of them is needed
        NO_UNROLL for (int base = threadIdx.x; base < count; base += 8 * THREADS) {
            part_t u[8];
            UNROLL for (int j = 0; j < 8; j++) {
                const int i = base + j * THREADS;
                if (i < inside) u[j] = ((const part_t*)from)[unit_of(i)];
                else u[j] = part_t{};
            }
            UNROLL for (int j = 0; j < 8; j++)
                if (base + j * THREADS < count) put(to, base + j * THREADS, u[j]);
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

// Sum over planes of u^2 at every input cell, chunk by chunk; where responses are bounded, the root
// of it.
DEVICE void sum_planes(float* energy, const u8* input, int chunk) {
    NO_UNROLL for (int i = threadIdx.x; i < PIXELS; i += THREADS) {
        const u8* at = input + i * PITCH;
        float sum = chunk > 0 ? energy[i] : 0.0f;
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
        UNROLL_BY(2) for (int part = 0; part < CELL_BYTES / 16; part++) {
            uint4 u = ((const uint4*)at)[part];
            sum += square(u.x) + square(u.y) + square(u.z) + square(u.w);
        }
#endif
        energy[i] = BOUNDED ? sqrt_of(sum) : sum;
    }
}

// Where a cell's window begins, in input cells.
DEVICE int window_of(int cell) {
    int g = cell / (ROWS * OUT), rest = cell % (ROWS * OUT);
    return (g * IN_ROWS + rest / OUT) * IN_W + rest % OUT;
}

// v / scale of every cell; v^2 of its part of the window where blocks share it. A thread takes
// RUN neighbouring cells of a row: what their windows share is read once.
//
// Where responses are bounded, v of a cell that cannot respond becomes 0. By Cauchy and Schwarz, tap
// by tap, sum a u <= sum |a| |u|, norms over the planes before; `profile` is the largest |a| of any
// plane at each tap, and a cell responds only where the sum exceeds theta v. SLACK is what float32
// may lose in sums of some dozen terms, and more.
#define RUN (CELLS >= 4 * THREADS ? 4 : 1)
#define SLACK 1e-4f
DEVICE float finished(float v2, float unit) { return sqrt_of(v2) * unit; }
DEVICE void inhibit(float* v, const float* energy, const float* c, const float* profile, float unit,
                    float theta) {
    const int runs = (OUT + RUN - 1) / RUN;
    NO_UNROLL for (int i = threadIdx.x; i < GROUP * ROWS * runs; i += THREADS) {
        const int line = i / runs, x = i % runs * RUN;
        const float* from = energy + (line / ROWS * IN_ROWS + line % ROWS) * IN_W + x;
        float sum[RUN] = {}, most[RUN] = {};
        UNROLL_BY(RUN > 1 ? 1 : KY_PER) for (int ky = 0; ky < KY_PER; ky++) {
            float seen[KSIZE + RUN - 1];
            UNROLL for (int kx = 0; kx < KSIZE + RUN - 1; kx++) seen[kx] = from[ky * IN_W + kx];
            UNROLL for (int kx = 0; kx < KSIZE; kx++) {
                const float weight = c[ky * KSIZE + kx];
                const float largest = BOUNDED ? profile[ky * KSIZE + kx] : 0.0f;
                UNROLL for (int j = 0; j < RUN; j++) {
                    const float u = seen[kx + j];
                    sum[j] += weight * (BOUNDED ? u * u : u);
                    if (BOUNDED) most[j] += largest * u;
                }
            }
        }
        UNROLL for (int j = 0; j < RUN; j++) {
            if (x + j >= OUT) break;
            float here = KSPLIT > 1 ? sum[j] : finished(sum[j], unit);
            if (BOUNDED && most[j] <= theta * here * (1.0f - SLACK)) here = 0.0f;
            v[line * OUT + x + j] = here;
        }
    }
}

// Cell of a row of the product; rows beyond the last repeat it.
DEVICE int cell_of(const u16* list, int row, int count) {
    return COMPACT ? list[min(row, count - 1)] : min(row, CELLS - 1);
}

// Set the block's planes of its cells to 0, 16 bytes a thread.
DEVICE void clear(out_t* first, int cells, int planes) {
    const int parts = planes * (int)sizeof(out_t) / 16;
    NO_UNROLL for (int i = threadIdx.x; i < cells * parts; i += THREADS)
        *(uint4*)(first + i / parts * OUT_C + i % parts * (16 / (int)sizeof(out_t))) =
            make_uint4(0, 0, 0, 0);
}

// List the cells with v > 0; returns how many there are. In any order: no cell's response depends
// on its neighbours in the list.
DEVICE int list_cells(u16* list, const float* v, int cells) {
    __shared__ int heard;
    if (threadIdx.x == 0) heard = 0;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    NO_UNROLL for (int base = threadIdx.x - lane; base < cells; base += THREADS) {
        const int cell = base + lane;
        const bool hears = cell < cells && v[cell] > 0.0f;
        const u32 vote = __ballot_sync(~0u, hears);
        int place = 0;
        if (lane == 0 && vote) place = atomicAdd(&heard, __popc(vote));
        place = __shfl_sync(~0u, place, 0);
        if (hears) list[place + __popc(vote & ((1u << lane) - 1))] = (u16)cell;
    }
    __syncthreads();
    return heard;
}

// Where the values of a step lie, counted from a cell's window.
DEVICE int place_of(int tap, int step) {
#if PAIR
    return tap * IN_W * PITCH + step * (4 * CELL_BYTES);
#else
    return (tap * JOIN / KSIZE * IN_W + tap * JOIN % KSIZE) * PITCH + step * 32;
#endif
}

#if WGMMA
// d += a b for any number of tiles that is the sum of two for which there is an instruction.
template <int tiles>
DEVICE void product(float (&d)[tiles][4], const u32 (&a)[4], const u32* from) {
    if constexpr (tiles > 10) {
        constexpr int low = tiles == 12 ? 6 : 10;
        wgmma<low>(*(float(*)[low][4])&d[0], a, from);
        wgmma<tiles - low>(*(float(*)[tiles - low][4])&d[low], a, from + low * 64);
    } else {
        wgmma<tiles>(d, a, from);
    }
}
#endif

// Number of the m-th tile of 16 cells of a warp. (The four warps of a group follow one another.)
DEVICE int tile_of(int pass, int wm, int m) {
#if WGMMA
    return ((pass * (WM / 4) + wm / 4) * MT + m) * 4 + wm % 4;
#else
    return (pass * WM + wm) * MT + m;
#endif
}

DEVICE void load_stage(u32* to, const u32* weights, int stage) {
    const int first = WITHIN_CHUNK(stage) * STAGE_TAPS, taps = min(STAGE_TAPS, TAPS - first);
    const u32* from = weights + (CHUNKS > 1 ? stage / STAGES * TAPS + first : first) * TAP_WORDS;
    NO_UNROLL for (int i = threadIdx.x; i < taps * TAP_WORDS / 4; i += THREADS)
        copy_async_16(to + i * 4, from + i * 4);
}

// The A operand of one tile of 16 cells.
DEVICE void load_cells(u32 (&a)[4], const u8* from, const u8* from_lower) {
#if PAIR
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
    *(uint2*)out = make_uint2(half2_of(x[0], x[1]), half2_of(x[2], x[3]));
#endif
}

DEVICE void store_two(out_t* out, float first, float second) {
#if OUT_MAP == 0
    *(float2*)out = make_float2(first, second);
#else
    *(u32*)out = half2_of(first, second);
#endif
}

// As s_response, for four neighbouring planes of a cell (two at an odd end); both sides of the
// fraction are in the units of the weights.
DEVICE void respond(out_t* cell, const float* silences, int plane, bool two, float4 e, float v,
                    float theta) {
    const float limit = theta * v;
    float x[4] = {e.x, e.y, e.z, e.w};
    UNROLL for (int i = 0; i < 4; i++) {
        if (i >= 2 && two) break;
        x[i] = fmaxf(x[i] - limit, 0.0f) * reciprocal_of(v + silences[plane + i]);
    }
    if (two) store_two(cell + plane, x[0], x[1]);
    else store(cell + plane, x);
}

#if SPREAD
// What a lane holds of one half of a tile of cells and one pair of tiles of planes.
struct Item {
    int row, plane;
    bool two;
};
#define PAIRS ((NT + 1) / 2)
#define ITEMS (WM * WN * MT * 2 * PAIRS * 32)
DEVICE Item item_of(int i) {
    const int lane = i % 32, pair = i / 32 % PAIRS, half = i / (32 * PAIRS) % 2;
    const int m = i / (64 * PAIRS) % MT, warp = i / (64 * PAIRS * MT);
    const bool two = NT % 2 && pair == PAIRS - 1;
    return {tile_of(0, warp % WM, m) * 16 + half * 8 + lane / 4,
            warp / WM * (NT * 8) + pair * 16 + lane % 4 * (two ? 2 : 4), two};
}
DEVICE float4 sum_of_warps(const float* sums, int i) {
    const int lane = i % 32, pair = i / 32 % PAIRS, half = i / (32 * PAIRS) % 2;
    const int m = i / (64 * PAIRS) % MT, warp = i / (64 * PAIRS * MT);
    const bool two = NT % 2 && pair == PAIRS - 1;
    const float* at = sums + ((warp * MT + m) * NT * 4 + pair * 8 + half * 2) * 32 + lane;
    float4 e = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    UNROLL for (int k = 0; k < WK; k++) {
        const float* from = at + k * (WM * WN * MT * NT * 4 * 32);
        e.x += from[0], e.y += from[32];
        if (!two) e.z += from[128], e.w += from[160];
    }
    return e;
}
#endif

#endif  // NEOCOG_S_TENSOR_CUH
