// The finder's network: operations of its graph, on maps of all sizes of a picture at once.
//
// Maps lie channel-last in halves, those of one size after those of the size before; a tile is
// ROWS x 16 places of one size, and a block computes one tile.
//
// Ladder of versions (what each added):
//   1  one launch an operation and size of the picture: 64 operations, five sizes.
//   2  all sizes in one launch: small sizes take no launches of their own.
//   3  depthwise -> 1x1 -> 1x1 -> sum in one kernel: products on tensor cores (mma.sync, sums in
//      float32); what a product gives is the operand of the next in the same registers.
#include "levels.cuh"

#ifndef ROWS
#define ROWS 4
#endif
#define ACROSS 16
#define THREADS (32 * ROWS)

// TARGET_FLOAT: what is written is float32, not half.
#ifndef TARGET_FLOAT
#define TARGET_FLOAT 0
#endif
#if TARGET_FLOAT
typedef float target_t;
DEVICE void put(target_t* to, float value) { *to = value; }
DEVICE void put_pair(target_t* to, float a, float b) { *(float2*)to = make_float2(a, b); }
#else
typedef u16 target_t;
DEVICE void put(target_t* to, float value) { *to = half_of(value); }
DEVICE void put_pair(target_t* to, float a, float b) { *(u32*)to = half2_of(a, b); }
#endif

// Place (y, x) of a tile's size in maps at its resolution, or at half of it (enlarged by 2, nearest).
DEVICE int place_of(const Tile& tile, int y, int x, int halved) {
    return halved ? tile.first / 4 + y / 2 * (tile.wide / 2) + x / 2 : tile.first + y * tile.wide + x;
}

// A convolution with all that follows it place by place:
//   DEPTHWISE  1: a depthwise convolution of CI channels comes first, rectified if RELU0
//   LAYERS     0 .. 2 products: the first takes windows of the source (places of the depthwise maps),
//              gives N1 channels, rectified if RELU1; the second 1x1, N2, RELU2
//   APART      pixels of the picture between two places of what is written
//   SKIP       1: a map is added, 2: one at half the resolution; RELU_END rectifies the sum
// KSIZE, STRIDE, PADDING, DILATION: of the convolution that reads the source. Channels are stored in
// multiples of 8, the spare ones 0, or alone. BIAS0 .. SECOND: words of `weights` where parts begin:
// depthwise weights (taps, CI) at 0, biases, fragments of B as the lanes of a warp take them.
#define TAPS (KSIZE * KSIZE)
#define STRIP 4  // neighbouring places of a thread in the depthwise convolution
#define SEEN ((STRIP - 1) * STRIDE + (KSIZE - 1) * DILATION + 1)
#define PITCH (CI / 2 + (CI / 2 % 8 == 0 ? 4 : 0))  // words; rows of a fragment in different banks
#define DEPTH (DEPTHWISE ? CI : TAPS * CI)
#define STEPS ((DEPTH + 15) / 16)
#define TILES1 ((N1 + 7) / 8)
#define TILES2 ((N2 + 7) / 8)
#if LAYERS == 2
#define OUT N2
#define OUT_TILES TILES2
#define OUT_RELU RELU2
#else
#define OUT N1
#define OUT_TILES TILES1
#define OUT_RELU RELU1
#endif

DEVICE float rectified(float value, int wanted) { return wanted ? fmaxf(value, 0.0f) : value; }

#if DEPTHWISE
// The depthwise maps of a tile: to shared memory (place, PITCH words), or to the target.
DEVICE void depthwise(u32* shared, target_t* target, const Tile& tile, const u16* source,
                      const float* weights) {
    const int high = tile.high * STRIDE, wide = tile.wide * STRIDE;
    source += (u64)tile.first * (STRIDE * STRIDE) * CI;
    for (int i = threadIdx.x; i < ROWS * ACROSS / STRIP * (CI / 2); i += THREADS) {
        const int c = i % (CI / 2) * 2, strip = i / (CI / 2);
        const int row = strip / (ACROSS / STRIP), column = strip % (ACROSS / STRIP) * STRIP;
        const int y = (tile.top + row) * STRIDE - PADDING, x = (tile.left + column) * STRIDE - PADDING;
        const float2 bias = *(const float2*)(weights + BIAS0 + c);
        float2 sum[STRIP];
        UNROLL for (int n = 0; n < STRIP; n++) sum[n] = bias;
        UNROLL for (int dy = 0; dy < KSIZE; dy++) {
            const int from = y + dy * DILATION;
            if (from < 0 || from >= high) continue;
            float2 seen[SEEN];
            UNROLL for (int j = 0; j < SEEN; j++) {
                const bool inside = x + j >= 0 && x + j < wide;
                seen[j] = floats_of_half2(inside ? *(const u32*)(source + (from * wide + x + j) * CI + c) : 0u);
            }
            UNROLL for (int dx = 0; dx < KSIZE; dx++) {
                const float2 w = *(const float2*)(weights + (dy * KSIZE + dx) * CI + c);
                UNROLL for (int n = 0; n < STRIP; n++) {
                    sum[n].x = fmaf(w.x, seen[n * STRIDE + dx * DILATION].x, sum[n].x);
                    sum[n].y = fmaf(w.y, seen[n * STRIDE + dx * DILATION].y, sum[n].y);
                }
            }
        }
        UNROLL for (int n = 0; n < STRIP; n++) {
            const float a = rectified(sum[n].x, RELU0), b = rectified(sum[n].y, RELU0);
            const int at_y = tile.top + row, at_x = tile.left + column + n;
#if LAYERS
            shared[(row * ACROSS + column + n) * PITCH + c / 2] = half2_of(a, b);
#else
            if (at_y < tile.high && at_x < tile.wide)
                put_pair(target + place_of(tile, at_y, at_x, 0) * CI + c, a, b);
#endif
        }
    }
}
#endif

// Values `group + 2 t` and the next of the window of a place: (tap, channel), 0 outside the map.
DEVICE u32 window(const u16* source, int high, int wide, int y, int x, int group, int t) {
    const int top = y * STRIDE - PADDING, left = x * STRIDE - PADDING;
#if CI == 1
    u32 pair = 0;
    UNROLL for (int i = 0; i < 2; i++) {
        const int tap = group + 2 * t + i, row = top + tap / KSIZE * DILATION,
                  column = left + tap % KSIZE * DILATION;
        if (tap < TAPS && row >= 0 && row < high && column >= 0 && column < wide)
            pair |= (u32)source[row * wide + column] << 16 * i;
    }
    return pair;
#else
    const int tap = group / CI, channel = group % CI + 2 * t;
    const int row = top + tap / KSIZE * DILATION, column = left + tap % KSIZE * DILATION;
    if (tap >= TAPS || row < 0 || row >= high || column < 0 || column >= wide) return 0;
    return *(const u32*)(source + (row * wide + column) * CI + channel);
#endif
}

// d = the biases of a lane's columns.
template <int tiles>
DEVICE void begin(float (&d)[tiles][4], const float* bias, int t) {
    UNROLL for (int n = 0; n < tiles; n++) {
        const float2 two = *(const float2*)(bias + 8 * n + 2 * t);
        d[n][0] = d[n][2] = two.x, d[n][1] = d[n][3] = two.y;
    }
}

// d += A B for 16 values of the depth.
template <int tiles>
DEVICE void multiply(float (&d)[tiles][4], const u32 (&a)[4], const u32* fragments, int lane) {
    UNROLL for (int n = 0; n < tiles; n++) {
        const uint2 b = *(const uint2*)(fragments + (n * 32 + lane) * 2);
        mma_half(d[n], a, b.x, b.y);
    }
}

KERNEL(THREADS) chain(const Level* levels, int count, const u16* source, const u32* weights,
                      const u16* skip, target_t* target) {
    start_next();
    const Tile tile = tile_of(levels, count, blockIdx.x, APART, ROWS, ACROSS);
    if (tile.level < 0) return;
    wait_for_previous();
#if DEPTHWISE
    __shared__ u32 shared[LAYERS ? ROWS * ACROSS * PITCH : 1];
    depthwise(shared, target, tile, source, (const float*)weights);
    __syncthreads();
#endif
#if LAYERS
    // A warp takes a row of the tile: lane 4 g + t places g and g + 8, columns 2 t and 2 t + 1 of 8.
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int y = tile.top + row, x = tile.left + g;
    float first[TILES1][4];
    begin<TILES1>(first, (const float*)weights + BIAS1, t);
    const int high = tile.high * STRIDE, wide = tile.wide * STRIDE;
    const u16* maps = source + (u64)tile.first * (STRIDE * STRIDE) * CI;
    UNROLL_BY(STEPS < 12 ? STEPS : 4) for (int s = 0; s < STEPS; s++) {
        u32 a[4];
#if DEPTHWISE
        const u32* places = shared + (row * ACROSS + g) * PITCH + 8 * s + t;
        a[0] = places[0], a[1] = places[8 * PITCH];
        const bool more = 16 * s + 8 < CI;
        a[2] = more ? places[4] : 0u, a[3] = more ? places[8 * PITCH + 4] : 0u;
#else
        UNROLL for (int i = 0; i < 4; i++)
            a[i] = window(maps, high, wide, y, x + i % 2 * 8, 16 * s + i / 2 * 8, t);
#endif
        multiply<TILES1>(first, a, weights + FIRST + s * TILES1 * 64, lane);
    }
#if LAYERS == 2
    float out[TILES2][4];
    begin<TILES2>(out, (const float*)weights + BIAS2, t);
    UNROLL for (int s = 0; s < (TILES1 + 1) / 2; s++) {
        u32 a[4];
        UNROLL for (int i = 0; i < 4; i++) {
            const int n = 2 * s + i / 2, h = i % 2 * 2;
            a[i] = n < TILES1 ? half2_of(rectified(first[n < TILES1 ? n : 0][h], RELU1),
                                         rectified(first[n < TILES1 ? n : 0][h + 1], RELU1))
                              : 0u;
        }
        multiply<TILES2>(out, a, weights + SECOND + s * TILES2 * 64, lane);
    }
#else
    float(&out)[TILES1][4] = first;
#endif
    if (y >= tile.high) return;
    UNROLL for (int half = 0; half < 2; half++) {
        const int column = x + 8 * half;
        if (column >= tile.wide) continue;
        const u16* more = skip + (u64)place_of(tile, y, column, SKIP == 2) * OUT;
        target_t* cell = target + (u64)place_of(tile, y, column, 0) * OUT;
        UNROLL for (int n = 0; n < OUT_TILES; n++) {
            const int c = 8 * n + 2 * t;
            float2 value = make_float2(rectified(out[n][2 * half], OUT_RELU),
                                       rectified(out[n][2 * half + 1], OUT_RELU));
#if OUT == 1
            if (SKIP && c == 0) value.x += float_of_half(more[0]);
            if (c == 0) put(cell, rectified(value.x, RELU_END));
#else
            if (SKIP) {
                const float2 added = floats_of_half2(*(const u32*)(more + c));
                value.x += added.x, value.y += added.y;
            }
            put_pair(cell + c, rectified(value.x, RELU_END), rectified(value.y, RELU_END));
#endif
        }
    }
#endif
}
