// C-cells on tensor cores: psi(max(0, sum a_C u)) at stride 2, as banded matrix products.
//
// Rows of the product are 16 cell-planes, columns are 8 neighbouring cells of a row, and the inner
// dimension runs along a row of the input, 16 columns a step. Cell n of a tile sees the columns
// 2 n .. 2 n + TAPS - 1 of its tile, so a row of a_C becomes one banded (Toeplitz) operand that is
// the same for every tile, plane and row of cells: NB small fragments, packed offline.
//
// Ladder of versions (what each added):
//   1  c_band: a warp for every row of a tile of 8 cells; the input rows of a band of ROWS rows of
//      cells lie in shared memory, brought by all threads at once. Small code, short chains, many
//      threads to bring little: for few digits.
//   2  c_stream: for many digits. A warp goes down the input once; LIVE rows of cells are under way
//      at a time, the oldest is finished every second input row and its sums move on. No input row
//      is read twice and no weights are read at all: they stay in registers, each in the place
//      where the sums that need it come by. Input rows pass through a ring in shared memory.
//   3  each column of the input is 32 bytes, its two halves swapped in every other group of four
//      columns: ldmatrix meets no bank twice and nothing is lost to padding. The silent columns
//      right of a row are those left of the next.
//   4  responses are transposed among the lanes (movmatrix), so that neighbouring planes are stored
//      together.
//   5  Weights of half precision are rounded at a scale that suits them (pack in c_tensor.py).
//   6  MAP 0: float32 results from half operands. Each operand is the sum of two halves; the three
//      products that matter are summed a row of the input at a time, the small ones first, and rows
//      are added in float32 (tensor cores cut sums off, they do not round).
//
// An 18x18 layer over 68x68 cells and 16 planes: about 6 100 products of 16x8x16 a digit.
#include "platform.cuh"

// SIZE cells a side of US; CHANNELS stored of US; OUT cells a side of UC; UC_WIDTH, UC_BORDER,
// UC_CHANNELS its layout; TAPS of a_C a side; PADDING; PSI 0 sqrt, 1 ratio. ROWS rows of cells and
// GROUPS groups of 16 planes a block; STEPS pairs of input rows a stage; STAGES in the ring;
// BLOCKS on a multiprocessor; RESIDENT whether c_stream keeps the weights in registers.
#define LIVE ((TAPS + 1) / 2)        // rows of cells that a pair of input rows reaches
#define NB ((14 + TAPS + 15) / 16)   // products of depth 16 for a tile and an input row
#define TILES ((OUT + 7) / 8)
#ifdef BAND
#define WARPS (TILES * GROUPS * ROWS)  // a warp for every row of a tile
#else
#define WARPS (TILES * GROUPS)
#endif
#define THREADS (WARPS * 32)
#define PARTS (MAP == 0 ? 2 : 1)     // halves of an input and of a weight
#define CELL 32                      // bytes of 16 planes
#define SEEN (16 * (TILES + NB - 1)) // columns that the tiles see
#define LAST_COLUMN (SIZE + PADDING > SEEN - PADDING ? SIZE + PADDING : SEEN - PADDING)
#define LINE ((LAST_COLUMN + 7) / 8 * 8 * CELL)  // bytes from a row to the next
#define STAGE (2 * STEPS * GROUPS * LINE)
#define TAIL ((SEEN * CELL > LINE ? SEEN * CELL - LINE : 0))
#define INPUT (STAGES * STAGE + TAIL)            // bytes of one half of the ring
#define AHEAD (STAGES - 1)  // stages that are under way
#define WEIGHT_ROW (PARTS * 32 * 2 * NB)         // words of a row of weights
#define SILENT_ROW (2 * LIVE)                    // the row of weights that is 0
#define PER_COLUMN (GROUPS * (MAP == 0 ? 4 : 2)) // 16 bytes each
#define PER_ROW (SIZE * PER_COLUMN)
#define PER_THREAD ((PER_ROW + THREADS - 1) / THREADS)
enum { rows_at_once = 8 / PER_THREAD > 1 ? 8 / PER_THREAD : 1 };
#define BOUNDS THREADS, BLOCKS

DEVICE float saturated(float x) {
    x = x > 0.0f ? x : 0.0f;
    return PSI == 0 ? sqrt_of(x) : __fdividef(x, 1.0f + x);
}

DEVICE void product(float (&d)[4], const u32 (&a)[4], uint2 b) { mma_half(d, a, b.x, b.y); }

// -- the ring of input rows ----------------------------------------------------------------------
// Where 8 planes (`half` of 16) of a column lie in its row.
DEVICE int place_of(int column, int half) { return column * CELL + ((half ^ column >> 2) & 1) * 16; }

// What a thread brings of every row: 16 bytes from here to there, PER_THREAD times.
struct Share {
    int from[PER_THREAD], to[PER_THREAD];  // from: in values; below 0 for nothing
};

DEVICE Share share_of_row() {
    Share share;
    UNROLL for (int n = 0; n < PER_THREAD; n++) {
        const int i = threadIdx.x + n * THREADS, x = i / PER_COLUMN, part = i % PER_COLUMN;
        const int channel = blockIdx.y * (GROUPS * 16) + part * (MAP == 0 ? 4 : 8);
        share.from[n] = i < PER_ROW && channel < CHANNELS ? x * CHANNELS + channel : -1;
#if MAP
        share.to[n] = part / 2 * LINE + place_of(x + PADDING, part % 2);
#else
        share.to[n] = part / 4 * LINE + place_of(x + PADDING, part / 2) + part % 2 * 8;
#endif
    }
    return share;
}

// Four values as their higher and lower halves.
DEVICE void put(u8* to, float4 x) {
    const u32 xy = half2_of(x.x, x.y), zw = half2_of(x.z, x.w);
    const float2 a = floats_of_half2(xy), b = floats_of_half2(zw);
    *(uint2*)to = make_uint2(xy, zw);
    *(uint2*)(to + INPUT) =
        make_uint2(half2_of(x.x - a.x, x.y - a.y), half2_of(x.z - b.x, x.w - b.y));
}

// Rows y .. y + 2 STEPS - 1 of the map, silent where there is no such row.
DEVICE void load_stage(u8* stage, const map_t* map, int y, const Share& share) {
#if MAP
    UNROLL_BY(rows_at_once) for (int row = 0; row < 2 * STEPS; row++) {
        const bool given = (u32)(y + row) < SIZE;
        const map_t* from = map + (given ? (y + row) * (SIZE * CHANNELS) : 0);
        UNROLL for (int n = 0; n < PER_THREAD; n++)
            if (share.from[n] >= 0)
                copy_async_16_or_0(stage + row * (GROUPS * LINE) + share.to[n],
                                   from + share.from[n], given);
    }
#else
    // eight loads are under way before the first of them is needed
    NO_UNROLL for (int first = 0; first < 2 * STEPS; first += rows_at_once) {
        float4 u[rows_at_once][PER_THREAD];
        UNROLL for (int r = 0; r < rows_at_once; r++)
            UNROLL for (int n = 0; n < PER_THREAD; n++) {
                const int row = y + first + r;
                u[r][n] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (share.from[n] >= 0 && (u32)row < SIZE)
                    u[r][n] = *(const float4*)(map + row * (SIZE * CHANNELS) + share.from[n]);
            }
        UNROLL for (int r = 0; r < rows_at_once; r++)
            UNROLL for (int n = 0; n < PER_THREAD; n++) {
                if (share.from[n] < 0 || first + r >= 2 * STEPS) continue;
                put(stage + (first + r) * (GROUPS * LINE) + share.to[n], u[r][n]);
            }
    }
#endif
}

// The pairs of input rows that a band of rows of cells sees, and the warp's share of it. Pair m
// holds rows 2 m and 2 m + 1 of the padded map; row r of cells sees the pairs r .. r + LIVE - 1.
struct Band {
    int first, end;   // rows of cells
    int start, last;  // pairs of rows that are not silent
    int lane_at;      // where in a row this lane reads, in bytes
    map_t* cells;     // what it writes of row 0 of cells
    bool writes, both;  // whether any; whether the upper 8 of its 16 planes too
};

DEVICE Band band_of(map_t* uc) {
    Band band;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / TILES % GROUPS;
    const int tile = warp % TILES, column = tile * 8 + (MAP ? lane / 4 : lane % 4 * 2);
    const int plane = (blockIdx.y * GROUPS + group) * 16 + (MAP ? lane % 4 * 2 : lane / 4);
    band.first = blockIdx.x * ROWS;
    band.end = min(band.first + ROWS, OUT);
    band.start = max(band.first, PADDING / 2);
    band.last = min(band.end + LIVE - 2, (SIZE - 1 + PADDING) / 2);
    band.lane_at = group * LINE + place_of(tile * 16 + lane / 16 * 8 + lane % 8, lane / 8 % 2);
    band.cells = uc + (((u64)blockIdx.z * UC_WIDTH + UC_BORDER) * UC_WIDTH + column + UC_BORDER) *
                          UC_CHANNELS + plane;
    band.writes = column < OUT && plane < UC_CHANNELS;
    band.both = UC_CHANNELS % 16 == 0 || plane + 8 < UC_CHANNELS;
    return band;
}

DEVICE void silence(u8* ring) {
    UNROLL_BY(2) for (int i = threadIdx.x; i < PARTS * INPUT / 16; i += THREADS)
        ((uint4*)ring)[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
}

DEVICE const map_t* map_of(const map_t* us) {
    return us + (u64)blockIdx.z * (SIZE * SIZE * CHANNELS);
}

DEVICE void load_pairs(u8* ring, const map_t* us, const Band& band, const Share& share,
                       int stage) {
    const int pair = band.start + stage * STEPS;
    if (pair <= band.last)
        load_stage(ring + stage % STAGES * STAGE, map_of(us), 2 * pair - PADDING,
                   share);
    copy_async_commit();
}

// Wait for a stage, and have a later one on its way.
DEVICE const u8* next_stage(u8* ring, const map_t* us, const Band& band, const Share& share,
                            int stage) {
    copy_async_wait<AHEAD - 1>();
    __syncthreads();
    load_pairs(ring, us, band, share, stage + AHEAD);
    return ring + stage % STAGES * STAGE + band.lane_at;
}

// -- products ------------------------------------------------------------------------------------
// What a tile sees of one row.
DEVICE void load_row(u32 (&a)[PARTS][NB][4], const u8* from) {
    UNROLL for (int part = 0; part < PARTS; part++)
        UNROLL for (int b = 0; b < NB; b++)
            load_matrix_x4_transposed(a[part][b], from + part * INPUT + b * (16 * CELL));
}

// sum[slot(n, b)] += the n-th of N rows of weights times step b of a row of the input.
template <int N, int SUMS, class Weight, class Slot>
DEVICE void multiply(float (&sum)[SUMS][4], const u32 (&a)[PARTS][NB][4], Weight weight, Slot slot) {
#if MAP
    UNROLL for (int b = 0; b < NB; b++)
        UNROLL for (int n = 0; n < N; n++) product(sum[slot(n, b)], a[0][b], weight(n, 0, b));
#else
    float row[N][4];
    UNROLL for (int n = 0; n < N; n++)
        UNROLL for (int i = 0; i < 4; i++) row[n][i] = 0.0f;
    UNROLL for (int b = 0; b < NB; b++) {
        UNROLL for (int n = 0; n < N; n++) product(row[n], a[1][b], weight(n, 0, b));
        UNROLL for (int n = 0; n < N; n++) product(row[n], a[0][b], weight(n, 1, b));
        UNROLL for (int n = 0; n < N; n++) product(row[n], a[0][b], weight(n, 0, b));
    }
    UNROLL for (int n = 0; n < N; n++)
        UNROLL for (int i = 0; i < 4; i++) sum[slot(n, 0)][i] += row[n][i];
#endif
}

// Write one row of cells of the warp's tile; every lane of the warp comes here.
DEVICE void respond(const Band& band, const float (&sum)[4], int row, float scale) {
    float x[4];
    UNROLL for (int i = 0; i < 4; i++) x[i] = saturated(sum[i] * scale);
    map_t* to = band.cells + row * (UC_WIDTH * UC_CHANNELS);
#if MAP
    const u32 upper = transpose_matrix(half2_of(x[0], x[1]));
    const u32 lower = transpose_matrix(half2_of(x[2], x[3]));
    if (band.writes) {
        *(u32*)to = upper;
        if (band.both) *(u32*)(to + 8) = lower;
    }
#else
    const bool second = threadIdx.x / 32 % TILES * 8 + threadIdx.x % 4 * 2 + 1 < OUT;
    if (band.writes) {
        to[0] = x[0];
        if (second) to[UC_CHANNELS] = x[1];
        if (band.both) to[8] = x[2];
        if (band.both && second) to[UC_CHANNELS + 8] = x[3];
    }
#endif
}

DEVICE void copy_weights(u32* to, const u32* weights) {
    for (int i = threadIdx.x; i < (SILENT_ROW + 1) * WEIGHT_ROW / 4; i += THREADS)
        copy_async_16(to + i * 4, weights + i * 4);
    copy_async_commit();
}

DEVICE const uint2* lane_of(const u32* weights) {
    return (const uint2*)weights + threadIdx.x % 32 * NB;
}

// us (batch, SIZE, SIZE, CHANNELS); uc as its layout; weights packed by neocog/cuda/c_tensor.py.
// Grid: bands of rows of cells, groups of planes, digits.
#ifdef BAND
// All rows that the block sees, `rows` from row `top` of the map on: the block's threads share them.
DEVICE void load_band(u8* ring, const map_t* map, int top, int rows) {
    const int count = rows * PER_ROW;
#if MAP
    NO_UNROLL for (int i = threadIdx.x; i < count; i += THREADS) {
        const int row = i / PER_ROW, x = i % PER_ROW / PER_COLUMN, part = i % PER_COLUMN;
        const int channel = blockIdx.y * (GROUPS * 16) + part * 8, y = top + row;
        const bool given = (u32)y < SIZE && channel < CHANNELS;
        copy_async_16_or_0(
            ring + (row * GROUPS + part / 2) * LINE + place_of(x + PADDING, part % 2),
            map + (given ? (y * SIZE + x) * CHANNELS + channel : 0), given);
    }
#else
    // eight loads are under way before the first of them is needed
    NO_UNROLL for (int base = threadIdx.x; base < count; base += 8 * THREADS) {
        float4 u[8];
        UNROLL for (int n = 0; n < 8; n++) {
            const int i = base + n * THREADS, x = i % PER_ROW / PER_COLUMN, part = i % PER_COLUMN;
            const int channel = blockIdx.y * (GROUPS * 16) + part * 4, y = top + i / PER_ROW;
            u[n] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (i < count && (u32)y < SIZE && channel < CHANNELS)
                u[n] = *(const float4*)(map + (y * SIZE + x) * CHANNELS + channel);
        }
        UNROLL for (int n = 0; n < 8; n++) {
            const int i = base + n * THREADS, x = i % PER_ROW / PER_COLUMN, part = i % PER_COLUMN;
            if (i >= count) continue;
            put(ring + (i / PER_ROW * GROUPS + part / 4) * LINE +
                    place_of(x + PADDING, part / 2) + part % 2 * 8,
                u[n]);
        }
    }
#endif
}

KERNEL(BOUNDS) c_band(const map_t* us, map_t* uc, const u32* weights, float scale) {
    DYNAMIC_SHARED(ring);
    u32* const held = (u32*)(ring + PARTS * INPUT);
    start_next();
    copy_weights(held, weights);
    const Band band = band_of(uc);
    silence(ring);
    wait_for_previous();
    load_band(ring, map_of(us), 2 * band.start - PADDING, 2 * (band.last + 1 - band.start));
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();

    const int row = band.first + (int)threadIdx.x / (32 * TILES * GROUPS);
    if (row >= band.end) return;
    enum { chains = MAP ? 2 : 1 };  // sums that a cell has under way, so that products wait less
    float sum[chains][4] = {};
    const uint2* own = lane_of(held);
    const int first = max(row, band.start), last = min(row + LIVE - 1, band.last);
    UNROLL_BY(2) for (int i = 2 * first; i < 2 * last + 2; i++) {
        u32 a[PARTS][NB][4];
        load_row(a, ring + band.lane_at + (i - 2 * band.start) * (GROUPS * LINE));
        const uint2* w = own + (i - 2 * row) * (WEIGHT_ROW / 2);
        multiply<1>(
            sum, a, [&](int, int part, int b) { return w[part * (32 * NB) + b]; },
            [](int, int b) { return b % chains; });
    }
    if (chains == 2)
        UNROLL for (int i = 0; i < 4; i++) sum[0][i] += sum[chains - 1][i];
    respond(band, sum[0], row, scale);
}
#endif

#ifdef STREAM
KERNEL(BOUNDS) c_stream(const map_t* us, map_t* uc, const u32* weights, float scale) {
    DYNAMIC_SHARED(ring);
    start_next();
#if RESIDENT
    uint2 w[SILENT_ROW][NB];
    UNROLL for (int i = 0; i < SILENT_ROW; i++)
        UNROLL for (int b = 0; b < NB; b++) w[i][b] = lane_of(weights + i * WEIGHT_ROW)[b];
#else
    u32* const held = (u32*)(ring + PARTS * INPUT);
    const uint2* w = lane_of(held);
    copy_weights(held, weights);
#endif
    const Band band = band_of(uc);
    const Share share = share_of_row();
    silence(ring);
    wait_for_previous();
    NO_UNROLL for (int first = 0; first < AHEAD; first++) load_pairs(ring, us, band, share, first);

    // the sums of rows of cells pair - LIVE + 1 .. pair + STEPS - 1
    float sum[LIVE + STEPS - 1][4];
    UNROLL for (int n = 0; n < LIVE + STEPS - 1; n++)
        UNROLL for (int i = 0; i < 4; i++) sum[n][i] = 0.0f;
    int stage = 0;
    NO_UNROLL for (int pair = band.start; pair < band.end + LIVE - 1; pair += STEPS, stage++) {
        const u8* from = next_stage(ring, us, band, share, stage);
        UNROLL for (int u = 0; u < STEPS; u++) {
            if (pair + u <= band.last) {
                UNROLL for (int q = 0; q < 2; q++) {
                    u32 a[PARTS][NB][4];
                    load_row(a, from + (2 * u + q) * (GROUPS * LINE));
                    multiply<LIVE>(
                        sum, a,
                        [&](int k, int part, int b) {
#if RESIDENT
                            return w[2 * k + q][b];
#else
                            return w[(2 * k + q) * (WEIGHT_ROW / 2) + part * (32 * NB) + b];
#endif
                        },
                        [&](int k, int) { return u - k + LIVE - 1; });
                }
            }
            const int row = pair + u - LIVE + 1;
            if (row >= band.first && row < band.end) respond(band, sum[u], row, scale);
        }
        UNROLL for (int i = 0; i < 4; i++) {
            UNROLL for (int n = 0; n < LIVE - 1; n++) sum[n][i] = sum[n + STEPS][i];
            UNROLL for (int n = LIVE - 1; n < LIVE + STEPS - 1; n++) sum[n][i] = 0.0f;
        }
    }
}
#endif
