// Decomposed Winograd convolution, stride 1: filters of 3x3 to 51x51 as parts of at most 4x4.
//
// Versions (multiplications per output: see Split.per_output in winograd_transforms.py)
//   CUDA cores    three kernels, V and W in global memory; products in float32 with tiles in shared
//                 memory. Traffic N*N/(M*M) times the maps for V and for W; a batch is taken in
//                 chunks that stay in the L2 cache.
//   tensor cores  the same with winograd_tensor.cu for the products: half operands, which
//                 lose digits in the Winograd domain (F(4x4,3x3): 2e-3 of the largest response); or
//                 float32 as sums of two TF32 numbers, three products for one, which lose none.
//                 Parts as large as the tiles (4+4 taps, M = 4) share their input transforms: a
//                 third of the bytes of V and W for a sixth more products than 4+3.
// One kernel that keeps V and W in registers was 1.1 to 4 times slower in every layer, and is gone.
// winograd_fused.cu keeps V in shared memory, for parts as large as the tiles.
//
// Filters that stay the same are transformed once, in float64; experiments/winograd/winograd_filters.cu
// is for filters that change.
//
// STAGE is the kernel to build: 1 input_transform, 2 product, 3 the outputs. THREAD_WISE: inputs in the
// order that Lee and Kwak compare with (the channel varies fastest within a warp otherwise).
#include "winograd.cuh"

#if STAGE == 1
// -- input ----------------------------------------------------------------------------------------
// A thread transforms the tile of one channel at one start; maps (batch, WIDTH, WIDTH, CHANNELS).
template <int gy, int gx>
DEVICE void transform_start(const map_t* __restrict__ maps, operand_t* __restrict__ v, int batch,
                            int index) {
    using P = Pair<gy, gx>;
    if (index >= batch * P::starts * CV) return;
    int c = index % CV, start = index / CV;
    int sx = start % P::X::starts, sy = start / P::X::starts % P::Y::starts;
    int image = start / P::starts;
    int top = place_of_start<gy>(sy), left = place_of_start<gx>(sx);
    const map_t* from = maps + ((size_t)(image * WIDTH + top) * WIDTH + left) * CHANNELS + c;
    v += (size_t)P::first_start * batch * CV;
    input_tile<gy, gx>(
        [&](int y, int x) {
            bool inside = top + y < WIDTH && left + x < WIDTH && c < CHANNELS;
            return inside ? of_map(from[(y * WIDTH + x) * CHANNELS]) : 0.0f;
        },
        [&](int point, float value) {
            v[(size_t)point * batch * P::starts * CV + index] = to_operand(value);
        });
}

KERNEL(128) input_transform(const map_t* __restrict__ maps, operand_t* __restrict__ v, int batch) {
    wait_for_previous();
    start_next();
    int index = blockIdx.x * 128 + threadIdx.x;
#if THREAD_WISE  // neighbouring lanes take the sub-inputs of one tile and channel, one after another
    constexpr int side = P0 + P1;
    int sid = index % (side * side), c = index / (side * side) % CV;
    int tile = index / (side * side) / CV, image = tile / (TILES * TILES);
    int y = sid / side * TILES + tile / TILES % TILES, x = sid % side * TILES + tile % TILES;
    if (image >= batch) return;
    constexpr int first = P0 * TILES;  // starts of the first group
    auto at = [&](int rows, int columns, int row, int column) {
        return ((image * rows + row) * columns + column) * CV + c;
    };
    static_assert(!Group<0>::shared && !(P1 && Group<1>::shared), "each part has starts of its own");
#if P1
    constexpr int last = P1 * TILES;
    if (y >= first && x >= first)
        return transform_start<1, 1>(maps, v, batch, at(last, last, y - first, x - first));
    if (y >= first) return transform_start<1, 0>(maps, v, batch, at(last, first, y - first, x));
    if (x >= first) return transform_start<0, 1>(maps, v, batch, at(first, last, y, x - first));
#endif
    transform_start<0, 0>(maps, v, batch, at(first, first, y, x));
#else
#if P1
    if (blockIdx.y == 1) return transform_start<0, 1>(maps, v, batch, index);
    if (blockIdx.y == 2) return transform_start<1, 0>(maps, v, batch, index);
    if (blockIdx.y == 3) return transform_start<1, 1>(maps, v, batch, index);
#endif
    transform_start<0, 0>(maps, v, batch, index);
#endif
}
#endif

#if STAGE == 2
// -- products on the CUDA cores -------------------------------------------------------------------
// W[point] (tiles, KM) = sum over parts and channels of V (tiles, CV) U (CV, KM): a block makes
// BM tiles x BN planes, a thread TM x TN of them, BK channels at a time from two buffers.
constexpr int COLUMNS = BN / TN;                 // threads along the planes
constexpr int THREADS = (BM / TM) * COLUMNS;
constexpr int FLOATS4_V = BM * BK / 4, FLOATS4_U = BK * BN / 4;
constexpr int LOADS_V = (FLOATS4_V + THREADS - 1) / THREADS;
constexpr int LOADS_U = (FLOATS4_U + THREADS - 1) / THREADS;
static_assert(TM % 4 == 0 && TN % 4 == 0 && CV % BK == 0, "whole float4");
constexpr int PITCH = BM + 4;

KERNEL(THREADS) product(const float* __restrict__ v, const float* __restrict__ u,
                        float* __restrict__ w, int batch) {
    alignas(16) __shared__ float vs[2][BK][PITCH];
    alignas(16) __shared__ float us[2][BK][BN];
    wait_for_previous();
    start_next();
    int point = blockIdx.z, tiles = batch * TILES * TILES;
    int first_tile = blockIdx.x * BM, first_plane = blockIdx.y * BN;
    Place place = place_of_point(point);
    v += (size_t)place.start * batch * CV;
    u += (size_t)place.filter * CV * KM;

    // what this thread loads
    const float* v_from[LOADS_V];
    const float* u_from[LOADS_U];
    bool u_inside[LOADS_U];
    UNROLL for (int i = 0; i < LOADS_V; i++) {
        int at = i * THREADS + threadIdx.x;
        int tile = first_tile + at / (BK / 4);
        tile = tile < tiles ? tile : tiles - 1;
        v_from[i] = v + (size_t)first_row(place, tile) * CV + at % (BK / 4) * 4;
    }
    UNROLL for (int i = 0; i < LOADS_U; i++) {
        int at = i * THREADS + threadIdx.x;
        int plane = first_plane + at % (BN / 4) * 4;
        u_inside[i] = plane < KM && at < FLOATS4_U;
        u_from[i] = u + at / (BN / 4) * KM + plane;
    }
    float4 v_next[LOADS_V], u_next[LOADS_U];
    auto load = [&](int step) {
        int part = step / (CV / BK), c = step % (CV / BK) * BK;
        int offset = row_of_part(place, part) * CV + c;
        UNROLL for (int i = 0; i < LOADS_V; i++)  // beyond the block's last tile: read, not stored
            v_next[i] = *(const float4*)(v_from[i] + offset);
        UNROLL for (int i = 0; i < LOADS_U; i++)
            u_next[i] = u_inside[i] ? *(const float4*)(u_from[i] + (size_t)step * BK * KM)
                                    : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    };
    auto store = [&](int buffer) {
        UNROLL for (int i = 0; i < LOADS_V; i++) {
            int at = i * THREADS + threadIdx.x, row = at / (BK / 4), c = at % (BK / 4) * 4;
            if (at >= FLOATS4_V) continue;
            vs[buffer][c][row] = v_next[i].x;
            vs[buffer][c + 1][row] = v_next[i].y;
            vs[buffer][c + 2][row] = v_next[i].z;
            vs[buffer][c + 3][row] = v_next[i].w;
        }
        UNROLL for (int i = 0; i < LOADS_U; i++) {
            int at = i * THREADS + threadIdx.x;
            if (at < FLOATS4_U)
                *(float4*)&us[buffer][at / (BN / 4)][at % (BN / 4) * 4] = u_next[i];
        }
    };

    // rows i * (4 BM / TM) + 4 y and columns j * (4 BN / TN) + 4 x: float4 reads without conflicts
    int y = threadIdx.x / COLUMNS * 4, x = threadIdx.x % COLUMNS * 4;
    float sum[TM][TN] = {};
    int steps = place.parts * (CV / BK);
    load(0);
    store(0);
    __syncthreads();
    NO_UNROLL for (int step = 0; step < steps; step++) {
        int buffer = step & 1;
        if (step + 1 < steps) load(step + 1);
        UNROLL for (int c = 0; c < BK; c++) {
            float a[TM], b[TN];
            UNROLL for (int i = 0; i < TM / 4; i++)
                *(float4*)&a[4 * i] = *(const float4*)&vs[buffer][c][i * (4 * BM / TM) + y];
            UNROLL for (int j = 0; j < TN / 4; j++)
                *(float4*)&b[4 * j] = *(const float4*)&us[buffer][c][j * (4 * BN / TN) + x];
            UNROLL for (int i = 0; i < TM; i++)
                UNROLL for (int j = 0; j < TN; j++) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
        }
        if (step + 1 < steps) store(buffer ^ 1);
        __syncthreads();
    }
    w += (size_t)point * tiles * KM;
    UNROLL for (int i = 0; i < TM; i++) {
        int tile = first_tile + i / 4 * (4 * BM / TM) + y + i % 4;
        UNROLL for (int j = 0; j < TN / 4; j++) {
            int plane = first_plane + j * (4 * BN / TN) + x;
            if (tile < tiles && plane < KM)
                *(float4*)&w[(size_t)tile * KM + plane] = make_float4(
                    sum[i][4 * j], sum[i][4 * j + 1], sum[i][4 * j + 2], sum[i][4 * j + 3]);
        }
    }
}
#endif

#if STAGE == 3
// -- output ---------------------------------------------------------------------------------------
// A thread makes the M x M outputs of one plane in one tile; put(cell, k, value) takes each, cell
// counted over (batch, OUT, OUT).
template <class Put>
DEVICE void inverse_transform(const float* __restrict__ w, int batch, Put put) {
    int index = blockIdx.x * 128 + threadIdx.x;
    int k = index % KM, tile = index / KM;
    size_t pitch = (size_t)batch * TILES * TILES * KM;
    if (tile >= batch * TILES * TILES) return;
    w += index;
    float sum[M][M] = {};
    output_tile<0, 0>(sum, [&](int point) { return w[point * pitch]; });
#if P1
    output_tile<0, 1>(
        sum, [&](int point) { return w[(Pair<0, 1>::first_point + point) * pitch]; });
    output_tile<1, 0>(
        sum, [&](int point) { return w[(Pair<1, 0>::first_point + point) * pitch]; });
    output_tile<1, 1>(
        sum, [&](int point) { return w[(Pair<1, 1>::first_point + point) * pitch]; });
#endif
    put_tile(sum, tile, [&](size_t cell, float value) { put(cell, k, value); });
}

// y (batch, OUT, OUT, KM)
KERNEL(128) output_transform(const float* __restrict__ w, map_t* __restrict__ y, int batch) {
    wait_for_previous();
    start_next();
    inverse_transform(
        w, batch, [&](size_t cell, int k, float value) { y[cell * KM + k] = to_map(value); });
}

// The sums are the excitation of S-cells; v (batch, OUT, OUT) is their inhibition, silence (KM).
KERNEL(128) s_output_transform(const float* __restrict__ w, const float* __restrict__ v,
                               const float* __restrict__ silence, float theta,
                               map_t* __restrict__ y, int batch) {
    wait_for_previous();
    start_next();
    inverse_transform(w, batch, [&](size_t cell, int k, float value) {
        y[cell * KM + k] = to_map(winograd_s_response(value, v[cell], theta, silence[k]));
    });
}
#endif
