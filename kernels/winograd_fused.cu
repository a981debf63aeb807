// The decomposed Winograd convolution as one kernel (version "fused", see winograd.cu for the
// ladder): float32, parts of one size.
//
// A block makes BT tiles x BN planes. For every part and BK channels it transforms the tiles into
// shared memory and adds the products of all N * N points; each thread keeps TM tiles x TN planes
// of one point. Behind the last channel the products pass through shared memory to the threads
// that transform them back. The input is transformed once per part and block of planes: with 32
// planes that is an eighth of the work of the products.
#include "winograd.cuh"

constexpr int COLUMNS = BN / TN;
constexpr int THREADS_OF_POINT = (BT / TM) * COLUMNS;
constexpr int THREADS = POINTS * THREADS_OF_POINT;
// Pitches that spread channels (stores) and the points of one warp (loads) over the banks.
constexpr int V_PITCH = BT + 4, V_POINT = BK * V_PITCH + 8, U_POINT = BK * BN + 16;
constexpr int W_PITCH = BN + 4;
constexpr int FLOATS_LOOP = POINTS * (V_POINT + U_POINT), FLOATS_END = POINTS * BT * W_PITCH;
static_assert(P1 == 0 && TM % 4 == 0 && TN % 4 == 0 && CV % BK == 0, "one group, whole float4");
static_assert((FLOATS_LOOP > FLOATS_END ? FLOATS_LOOP : FLOATS_END) * 4 == SHARED, "as launched");

// The maps of US4 are float in every precision.
#if OUT_FLOAT
typedef float out_t;
DEVICE out_t to_out(float value) { return value; }
#else
typedef map_t out_t;
DEVICE out_t to_out(float value) { return to_map(value); }
#endif

// put(cell, k, value) takes each output of the block's tiles and planes.
template <class Put>
DEVICE void convolve(u8* bytes, const map_t* __restrict__ maps, const float* __restrict__ u,
                     int batch, Put put) {
    float* vs = (float*)bytes;          // (point, channel, tile)
    float* us = vs + POINTS * V_POINT;  // (point, channel, plane)
    float* ws = (float*)bytes;          // (point, tile, plane), when vs and us are done with
    constexpr int parts = P0 * P0;
    int tiles = batch * TILES * TILES;
    int first_tile = blockIdx.x * BT, first_plane = blockIdx.y * BN;
    int point = threadIdx.x / THREADS_OF_POINT, own = threadIdx.x % THREADS_OF_POINT;
    int ty = own / COLUMNS * 4, tx = own % COLUMNS * 4;
    const float* v_own = vs + point * V_POINT + ty;
    const float* u_own = us + point * U_POINT + tx;
    float sum[TM][TN] = {};
    NO_UNROLL for (int part = 0; part < parts; part++) {
        NO_UNROLL for (int c0 = 0; c0 < CV; c0 += BK) {
            for (int at = threadIdx.x; at < POINTS * BK * BN / 4; at += THREADS) {
                int plane = at % (BN / 4) * 4, c = at / (BN / 4) % BK, p = at / (BN / 4 * BK);
                int k = first_plane + plane < KM ? first_plane + plane : 0;  // beyond: unused
                copy_async_16(&us[p * U_POINT + c * BN + plane],
                              &u[((size_t)(p * parts + part) * CV + c0 + c) * KM + k]);
            }
            copy_async_commit();
            for (int at = threadIdx.x; at < BT * BK; at += THREADS) {
                int c = at % BK, tile = first_tile + at / BK;
                int image = tile / (TILES * TILES), inside = tile % (TILES * TILES);
                int top = inside / TILES * M + part / P0 * R0;
                int left = inside % TILES * M + part % P0 * R0;
                bool heard = tile < tiles && c0 + c < CHANNELS;
                const map_t* from =
                    maps + ((size_t)(image * WIDTH + top) * WIDTH + left) * CHANNELS + c0 + c;
                float* to = vs + c * V_PITCH + at / BK;
                input_tile<0, 0>(
                    [&](int i, int j) {
                        bool there = heard && top + i < WIDTH && left + j < WIDTH;
                        return there ? of_map(from[(i * WIDTH + j) * CHANNELS]) : 0.0f;
                    },
                    [&](int p, float value) { to[p * V_POINT] = value; });
            }
            copy_async_wait<0>();
            __syncthreads();
            UNROLL for (int c = 0; c < BK; c++) {
                float a[TM], b[TN];
                UNROLL for (int i = 0; i < TM / 4; i++)
                    *(float4*)&a[4 * i] = *(const float4*)&v_own[c * V_PITCH + i * (4 * BT / TM)];
                UNROLL for (int j = 0; j < TN / 4; j++)
                    *(float4*)&b[4 * j] = *(const float4*)&u_own[c * BN + j * (4 * BN / TN)];
                UNROLL for (int i = 0; i < TM; i++)
                    UNROLL for (int j = 0; j < TN; j++) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
            }
            __syncthreads();
        }
    }
    UNROLL for (int i = 0; i < TM; i++)
        UNROLL for (int j = 0; j < TN; j++)
            ws[(point * BT + i / 4 * (4 * BT / TM) + ty + i % 4) * W_PITCH +
               j / 4 * (4 * BN / TN) + tx + j % 4] = sum[i][j];
    __syncthreads();
    for (int at = threadIdx.x; at < BT * BN; at += THREADS) {
        int plane = at % BN, tile = first_tile + at / BN, k = first_plane + plane;
        if (k >= KM || tile >= tiles) continue;
        float out[M][M] = {};
        const float* from = ws + at / BN * W_PITCH + plane;
        output_tile<0, 0>(out, [&](int p) { return from[p * BT * W_PITCH]; });
        put_tile(out, tile, [&](size_t cell, float value) { put(cell, k, value); });
    }
}

#if S_CELLS
// The sums are the excitation of S-cells; v (batch, OUT, OUT) is their inhibition, silence (KM).
KERNEL(THREADS) s_winograd(const map_t* __restrict__ maps, const float* __restrict__ u,
                           const float* __restrict__ v, const float* __restrict__ silence,
                           float theta, out_t* __restrict__ y, int batch) {
    DYNAMIC_SHARED(bytes);
    wait_for_previous();
    start_next();
    convolve(bytes, maps, u, batch, [&](size_t cell, int k, float value) {
        y[cell * KM + k] = to_out(winograd_s_response(value, v[cell], theta, silence[k]));
    });
}
#else
// y (batch, OUT, OUT, KM)
KERNEL(THREADS) winograd(const map_t* __restrict__ maps, const float* __restrict__ u,
                         out_t* __restrict__ y, int batch) {
    DYNAMIC_SHARED(bytes);
    wait_for_previous();
    start_next();
    convolve(bytes, maps, u, batch,
             [&](size_t cell, int k, float value) { y[cell * KM + k] = to_out(value); });
}
#endif
