// Convolution and average pooling as one operation: a direct sum (see fused.py) as an implicit matrix
// product on tensor cores, a quarter of the products of the convolution at p = 2.
//
// Rows of the product are outputs, in patches of 8 x 8; columns are planes; the inner dimension runs
// over chunks of channels, then the taps of the filter. For a chunk the inputs that a patch needs
// come to shared memory once, are summed there, and serve all taps: a tap is an address. All warps sum
// the boxes of a chunk, then multiply; inputs and weights of what follows are on their way meanwhile.
//
// MAP 0 gives float32 results from TF32 operands: each the sum of two, three products, short sums.
// Commit 7628e6b2 has warps of different work (wgmma), blocks that share sums, and sums of pairs of halves.
#include "platform.cuh"

// MAP 1 half, 0 float32 as sums of two TF32 numbers; KSIZE taps a side; STRIDE of the product, and side of a
// box, the pooling; PATCHES of 8 x 8 outputs a block; PLANES of a block; UNITS of 16 bytes of a place's
// channels a chunk; STAGES of weights; WARPS_M x WARPS_N warps.
#define THREADS (WARPS_M * WARPS_N * 32)
#define VALUES (MAP == 0 ? 4 : 8)  // of a unit
#define PARTS (MAP == 0 ? 2 : 1)
#define TAPS (KSIZE * KSIZE)
#define SIDE (7 * STRIDE + KSIZE)  // rows and columns of sums that a patch needs
#define RAW_SIDE (SIDE + STRIDE - 1)
// Sums lie by unit, then patch, row, phase (column modulo STRIDE), column: the eight cells of a row
// of a patch see, with any tap, 128 bytes in a row.
#define PHASES (STRIDE < KSIZE ? STRIDE : KSIZE)
#define PHASE_WIDTH ((8 + (KSIZE - 1) / STRIDE) | 1)
#define ROW_BYTES (PHASES * PHASE_WIDTH * 16)
#define PATCH_BYTES (SIDE * ROW_BYTES)
// two more than a multiple of eight units: lanes that write neighbouring units and columns of a row
// meet no bank twice
#define UNIT_BYTES ((PATCHES * PATCH_BYTES / 16 + 5) / 8 * 128 + 32)
#define SUM_BYTES ((PARTS * UNITS * UNIT_BYTES + 127) / 128 * 128)
#define PLACES (PATCHES * RAW_SIDE * RAW_SIDE)
#define TABLE_BYTES ((PLACES * 4 + 127) / 128 * 128)
// the last segment of rows may read beyond the last patch
#define RAW_BYTES (((PLACES + SEGMENT * RAW_SIDE) * UNITS * 16 + 127) / 128 * 128)
#define STAGE_BYTES (PARTS * UNITS * PLANES * 16)
#define SEGMENT (STRIDE < 4 ? 3 : 2)  // rows of sums that a thread makes at once
#define SEGMENTS ((SIDE + SEGMENT - 1) / SEGMENT)
#define STEPS (UNITS / 2)  // products of 32 bytes' depth
// tensor cores cut sums off: of float32 at most 36 products in a row are summed there
#define FLUSH (MAP == 0)
#define FLUSH_TAPS (STEPS > 11 ? 1 : 12 / STEPS)
#define TILES (PLANES / 8)

// Sizes that are known at the launch.
struct Sizes {
    int height, width, units, out_height, out_width, planes, padding;
    int patches, patches_x, patches_y, slices, chunks;
};
DEVICE Sizes sizes_of(int batch, int height, int width, int channels, int out_height, int out_width,
                      int planes, int padding) {
    Sizes s = {height, width, channels / VALUES, out_height, out_width, planes, padding};
    s.patches_x = (out_width + 7) / 8, s.patches_y = (out_height + 7) / 8;
    s.patches = batch * s.patches_x * s.patches_y;
    s.slices = (planes + PLANES - 1) / PLANES, s.chunks = (s.units + UNITS - 1) / UNITS;
    return s;
}

// Where a patch lies: picture, and its first output.
struct Patch {
    int image, y, x;
    bool there;
};
DEVICE Patch patch_of(const Sizes& s, int number) {
    return {number / (s.patches_x * s.patches_y), number / s.patches_x % s.patches_y * 8,
            number % s.patches_x * 8, number < s.patches};
}

#define NOWHERE 0xffffffffu

// Where the inputs of a tile's patches lie, (patch, row, column), in units; NOWHERE outside.
DEVICE void list_places(u32* table, const Sizes& s, int tile) {
    NO_UNROLL for (int i = threadIdx.x; i < PLACES; i += THREADS) {
        const Patch patch = patch_of(s, tile * PATCHES + i / (RAW_SIDE * RAW_SIDE));
        const int row = patch.y * STRIDE - s.padding + i / RAW_SIDE % RAW_SIDE;
        const int column = patch.x * STRIDE - s.padding + i % RAW_SIDE;
        const bool inside = patch.there && (u32)row < (u32)s.height && (u32)column < (u32)s.width;
        table[i] = inside ? ((u32)(patch.image * s.height + row) * s.width + column) * s.units : NOWHERE;
    }
}

// The inputs listed, one chunk of channels, on their way to shared memory: (place, unit). What lies
// outside the picture is 0.
DEVICE void load_raw(u8* to, const u32* table, const map_t* x, const Sizes& s, int chunk) {
    const int unit = threadIdx.x % UNITS;  // THREADS is a multiple of UNITS
    const bool there = chunk * UNITS + unit < s.units;
    const u8* const from = (const u8*)x + (there ? chunk * UNITS + unit : 0) * 16;
    NO_UNROLL for (int first = threadIdx.x; first < PLACES * UNITS; first += 4 * THREADS) {
        u32 at[4];
        UNROLL for (int j = 0; j < 4; j++)
            at[j] = table[min((first + j * THREADS) / UNITS, PLACES - 1)];
        UNROLL for (int j = 0; j < 4; j++) {
            const int i = first + j * THREADS;
            const bool given = there && at[j] != NOWHERE;
            if (i < PLACES * UNITS)
                copy_async_16_or_0(to + i * 16, from + (given ? (u64)at[j] * 16 : 0), given);
        }
    }
}

// Add the values of a unit, in float32, to what is there or to 0.
DEVICE void add_unit(float (&sum)[VALUES], const uint4& unit, bool first) {
    const u32 words[4] = {unit.x, unit.y, unit.z, unit.w};
    UNROLL for (int i = 0; i < 4; i++) {
#if MAP == 0
        const float v = __uint_as_float(words[i]);
        sum[i] = first ? v : sum[i] + v;
#else
        const float2 v = floats_of_half2(words[i]);
        sum[2 * i] = first ? v.x : sum[2 * i] + v.x, sum[2 * i + 1] = first ? v.y : sum[2 * i + 1] + v.y;
#endif
    }
}

// Write a unit of sums, divided by the box's places, as operands.
DEVICE void put_unit(u8* to, const float (&sum)[VALUES]) {
    const float share = 1.0f / (STRIDE * STRIDE);
    u32 words[PARTS][4];
    UNROLL for (int i = 0; i < 4; i++) {
#if MAP == 0
        const float v = sum[i] * share;
        words[0][i] = tf32_of(v);
        words[1][i] = tf32_of(v - __uint_as_float(words[0][i]));
#else
        words[0][i] = half2_of(sum[2 * i] * share, sum[2 * i + 1] * share);
#endif
    }
    UNROLL for (int part = 0; part < PARTS; part++)
        *(uint4*)(to + part * UNITS * UNIT_BYTES) =
            make_uint4(words[part][0], words[part][1], words[part][2], words[part][3]);
}

// Means of the boxes of what load_raw brought. A thread makes SEGMENT rows of one column and unit.
DEVICE void sum_boxes(u8* to, const u8* raw) {
    NO_UNROLL for (int i = threadIdx.x; i < PATCHES * SEGMENTS * SIDE * UNITS; i += THREADS) {
        const int unit = i % UNITS, column = i / UNITS % SIDE;
        const int first = i / (UNITS * SIDE) % SEGMENTS * SEGMENT, m = i / (UNITS * SIDE * SEGMENTS);
        if (PHASES < STRIDE && column % STRIDE >= PHASES) continue;
        const uint4* from =
            (const uint4*)raw + ((m * RAW_SIDE + first) * RAW_SIDE + column) * UNITS + unit;
        u8* at = to + unit * UNIT_BYTES + m * PATCH_BYTES + first * ROW_BYTES +
                 (column % STRIDE * PHASE_WIDTH + column / STRIDE) * 16;
        float sum[SEGMENT][VALUES];
        UNROLL for (int r = 0; r < SEGMENT + STRIDE - 1; r++) {
            float line[VALUES];
            UNROLL for (int b = 0; b < STRIDE; b++)
                add_unit(line, from[(r * RAW_SIDE + b) * UNITS], b == 0);
            UNROLL for (int s = 0; s < SEGMENT; s++)
                if (s <= r && r < s + STRIDE)
                    UNROLL for (int v = 0; v < VALUES; v++)
                        sum[s][v] = r == s ? line[v] : sum[s][v] + line[v];
        }
        UNROLL for (int s = 0; s < SEGMENT; s++)
            if (SIDE % SEGMENT == 0 || first + s < SIDE) put_unit(at + s * ROW_BYTES, sum[s]);
    }
}

// Where the sums that a tap sees lie, counted from those of the first tap.
DEVICE int tap_bytes(int tap) {
    const int ky = tap / KSIZE, kx = tap % KSIZE;
    return ky * ROW_BYTES + (kx % STRIDE * PHASE_WIDTH + kx / STRIDE) * 16;
}

// Store `tiles` tiles of eight columns of one row of the product: output (y, x) of a patch. Columns
// are dealt to tiles so that a lane has eight neighbouring planes of each four tiles.
template <int tiles>
DEVICE void store_row(map_t* out, const Sizes& s, const Patch& patch, int row, int column, int plane,
                      const float (&sum)[tiles][4], int half) {
    const int y = patch.y + row, x = patch.x + column;
    if (!patch.there || y >= s.out_height || x >= s.out_width) return;
    map_t* const at = out + (((u64)patch.image * s.out_height + y) * s.out_width + x) * s.planes;
    UNROLL for (int g = 0; g < tiles / 4; g++) {
        const int first = plane + g * 32 + threadIdx.x % 4 * 8, left = s.planes - first;
        map_t* const to = at + first;
        float v[8];
        UNROLL for (int j = 0; j < 4; j++) {
            v[2 * j] = sum[4 * g + j][half * 2];
            v[2 * j + 1] = sum[4 * g + j][half * 2 + 1];
        }
        if (s.planes % 8 > 0 || left < 8) {
            UNROLL for (int i = 0; i < 8; i++)
                if (i < left) to[i] = to_map(v[i]);
            continue;
        }
#if MAP == 0
        ((float4*)to)[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4*)to)[1] = make_float4(v[4], v[5], v[6], v[7]);
#else
        *(uint4*)to = make_uint4(half2_of(v[0], v[1]), half2_of(v[2], v[3]), half2_of(v[4], v[5]),
                                 half2_of(v[6], v[7]));
#endif
    }
}

#define MT (PATCHES * 4 / WARPS_M)  // tiles of 16 cells of a warp
#define NT (TILES / WARPS_N)

// x (batch, height, width, channels); weights packed by experiments/convpool/fused.py; out (batch,
// out_height, out_width, planes).
#define BOUNDS THREADS, 1
KERNEL(BOUNDS)
conv_avgpool(const map_t* __restrict__ x, const u32* __restrict__ weights, map_t* __restrict__ out, int batch,
             int height, int width, int channels, int out_height, int out_width, int planes, int padding) {
    DYNAMIC_SHARED(shared);
    const Sizes s = sizes_of(batch, height, width, channels, out_height, out_width, planes, padding);
    const int lane = threadIdx.x % 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    u32* const table = (u32*)shared;
    u8* const sums = shared + TABLE_BYTES;
    u8* const raw = sums + SUM_BYTES;
    u8* const stages = raw + RAW_BYTES;
    const int wm = warp % WARPS_M, wn = warp / WARPS_M;
    const int tile = blockIdx.x / s.slices, slice = blockIdx.x % s.slices;
    const int count = s.chunks * TAPS;
    const u8* const from = (const u8*)weights + (u64)slice * count * STAGE_BYTES;
    auto load_stage = [&](int i) {
        if (i < count)
            NO_UNROLL for (int j = threadIdx.x; j < STAGE_BYTES / 16; j += THREADS)
                copy_async_16(stages + i % STAGES * STAGE_BYTES + j * 16,
                              from + (u64)i * STAGE_BYTES + j * 16);
    };
    list_places(table, s, tile);
    __syncthreads();
    load_raw(raw, table, x, s, 0);
    for (int i = 0; i < STAGES - 1; i++) {
        load_stage(i);
        copy_async_commit();
    }
    // where this lane's share of the operands begins
    int cell[MT];
    UNROLL for (int m = 0; m < MT; m++) {
        const int t = wm * MT + m;
        cell[m] = t / 4 * PATCH_BYTES + (t % 4 * 2 + lane / 8 % 2) * (STRIDE * ROW_BYTES) +
                  lane % 8 * 16 + lane / 16 * UNIT_BYTES;
    }
    const int plane = (lane / 8 % 2 * PLANES + wn * NT * 8 + lane / 16 * 8 + lane % 8) * 16;
    float sum[MT][NT][4] = {};
#if FLUSH
    float total[MT][NT][4] = {};
#endif
    NO_UNROLL for (int chunk = 0, i = 0; chunk < s.chunks; chunk++) {
        copy_async_wait<0>();
        __syncthreads();
        sum_boxes(sums, raw);
        __syncthreads();
        NO_UNROLL for (int tap = 0; tap < TAPS; tap++, i++) {
            if (tap > 0) {
                copy_async_wait<STAGES - 2>();
                __syncthreads();
            } else if (chunk + 1 < s.chunks) {
                load_raw(raw, table, x, s, chunk + 1);
            }
            load_stage(i + STAGES - 1);
            copy_async_commit();
            const u8* const a_at = sums + tap_bytes(tap);
            const u8* const b_at = stages + i % STAGES * STAGE_BYTES + plane;
            UNROLL for (int step = 0; step < STEPS; step++) {
                u32 a[PARTS][MT][4], b[PARTS][NT / 2][4];
                UNROLL for (int part = 0; part < PARTS; part++) {
                    const int unit = part * UNITS + 2 * step;
                    UNROLL for (int m = 0; m < MT; m++)
                        load_matrix_x4(a[part][m], a_at + cell[m] + unit * UNIT_BYTES);
                    UNROLL for (int n = 0; n < NT / 2; n++)
                        load_matrix_x4(b[part][n], b_at + (unit * PLANES + n * 16) * 16);
                }
                auto multiply = [&](int part_a, int part_b) {
                    UNROLL for (int m = 0; m < MT; m++)
                        UNROLL for (int n = 0; n < NT; n++) {
                            const u32 b0 = b[part_b][n / 2][n % 2 * 2];
                            const u32 b1 = b[part_b][n / 2][n % 2 * 2 + 1];
#if MAP == 1
                            mma_half(sum[m][n], a[part_a][m], b0, b1);
#else
                            mma_tf32(sum[m][n], a[part_a][m], b0, b1);
#endif
                        }
                };
                if (PARTS == 2) multiply(PARTS - 1, 0), multiply(0, PARTS - 1);
                multiply(0, 0);
            }
#if FLUSH
            if (tap == TAPS - 1 || tap % FLUSH_TAPS == FLUSH_TAPS - 1)
                UNROLL for (int m = 0; m < MT; m++)
                    UNROLL for (int n = 0; n < NT; n++)
                        UNROLL for (int j = 0; j < 4; j++)
                            total[m][n][j] += sum[m][n][j], sum[m][n][j] = 0.0f;
#endif
        }
    }
#if FLUSH
    auto& result = total;
#else
    auto& result = sum;
#endif
    UNROLL for (int m = 0; m < MT; m++) {
        const int t = wm * MT + m;
        const Patch patch = patch_of(s, tile * PATCHES + t / 4);
        UNROLL for (int half = 0; half < 2; half++)
            store_row(out, s, patch, t % 4 * 2 + half, lane / 4, slice * PLANES + wn * NT * 8,
                      result[m], half);
    }
}
