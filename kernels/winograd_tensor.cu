// Products of the decomposed Winograd convolution on tensor cores (version "tensor", see
// winograd.cu for the ladder): W[point] (tiles, KM) = sum over parts and channels of V (tiles, CV)
// times U (KM, CV), operands TF32 or half, sums float32.
//
// A block of eight warps, WARPS_M by 8 / WARPS_M, makes BM tiles x BN planes; rows of BYTES bytes of
// channels come through STAGES buffers by cp.async. A row's pitch of BYTES + 16 bytes keeps ldmatrix
// free of conflicts. All types load alike: 16 bytes are 8 halves or 4 floats, 32 bytes one step of
// mma along k.
//
// OPERAND 3 gives float32 results: each float is the sum of two TF32 numbers (22 bits), taken apart
// in registers, and the three products that matter are added, the small ones first. Unlike halves
// these have float32's range, so V and U stay plain floats of any size. Tensor cores cut sums off
// instead of rounding them: after FLUSH steps a sum is added up by ordinary addition.
#include "winograd.cuh"

constexpr int BK = BYTES / sizeof(operand_t);
constexpr int PITCH = BYTES + 16;
constexpr int WARPS_N = 8 / WARPS_M;
constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;  // a warp's share
constexpr int MI = WM / 16, NI = WN / 8;
constexpr int CHUNKS = BYTES / 16;
constexpr int LOADS_V = (BM * CHUNKS + 255) / 256, LOADS_U = (BN * CHUNKS + 255) / 256;
constexpr int STAGE = (BM + BN) * PITCH;
static_assert(WM % 16 == 0 && WN % 16 == 0 && CV % BK == 0, "whole fragments");

DEVICE void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if OPERAND == 2
    mma_half(d, a, b0, b1);
#else
    mma_tf32(d, a, b0, b1);
#endif
}

// One step along k of a warp's share.
constexpr int STEP = 32;   // bytes of a row that one step takes
constexpr int CHUNK = 16;  // from the first half of its depth to the second
DEVICE void multiply_once(float (&sum)[MI][NI][4], const u32 (&a)[MI][4], const u32 (&b)[NI / 2][4]) {
    UNROLL for (int i = 0; i < MI; i++)
        UNROLL for (int j = 0; j < NI; j++)
            multiply(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
}

#if OPERAND == 3
constexpr int FLUSH = 8 * STEP / BYTES;  // 8 steps along k, three mma each
// Leave the nearest TF32 number and return the rest, of which mma reads the upper 11 bits.
DEVICE u32 take_apart(u32& value) {
    u32 high = (value + 0x1000u) & 0xffffe000u;
    u32 low = __float_as_uint(__uint_as_float(value) - __uint_as_float(high));
    value = high;
    return low;
}
DEVICE void multiply_all(float (&sum)[MI][NI][4], u32 (&a)[MI][4], u32 (&b)[NI / 2][4]) {
    u32 a_low[MI][4], b_low[NI / 2][4];
    UNROLL for (int r = 0; r < 4; r++) {
        UNROLL for (int i = 0; i < MI; i++) a_low[i][r] = take_apart(a[i][r]);
        UNROLL for (int j = 0; j < NI / 2; j++) b_low[j][r] = take_apart(b[j][r]);
    }
    multiply_once(sum, a_low, b);
    multiply_once(sum, a, b_low);
    multiply_once(sum, a, b);
}
#else
DEVICE void multiply_all(float (&sum)[MI][NI][4], u32 (&a)[MI][4], u32 (&b)[NI / 2][4]) {
    multiply_once(sum, a, b);
}
#endif

#define BOUNDS 256, 2  // 128 registers a thread

KERNEL(BOUNDS) product(const operand_t* __restrict__ v, const operand_t* __restrict__ u,
                    float* __restrict__ w, int batch) {
    DYNAMIC_SHARED(shared);
    int point = blockIdx.z, tiles = batch * TILES * TILES;
    int first_tile = blockIdx.x * BM, first_plane = blockIdx.y * BN;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Place place = place_of_point(point);
    v += (size_t)place.start * batch * CV;
    u += (size_t)place.filter * KM * CV;

    const operand_t* v_from[LOADS_V];
    const operand_t* u_from[LOADS_U];
    UNROLL for (int i = 0; i < LOADS_V; i++) {  // rows beyond the last repeat it, unused
        int at = i * 256 + threadIdx.x, tile = first_tile + at / CHUNKS;
        tile = tile < tiles ? tile : tiles - 1;
        v_from[i] = v + (size_t)first_row(place, tile) * CV + at % CHUNKS * (BK / CHUNKS);
    }
    UNROLL for (int i = 0; i < LOADS_U; i++) {
        int at = i * 256 + threadIdx.x, plane = first_plane + at / CHUNKS;
        plane = plane < KM ? plane : KM - 1;
        u_from[i] = u + (size_t)plane * CV + at % CHUNKS * (BK / CHUNKS);
    }
    int steps = place.parts * (CV / BK);
    auto load_u = [&](int step) {
        if (step >= steps) return;
        u8* to = shared + step % STAGES * STAGE + BM * PITCH;
        size_t offset = (size_t)(step / (CV / BK)) * KM * CV + step % (CV / BK) * BK;
        UNROLL for (int i = 0; i < LOADS_U; i++) {
            int at = i * 256 + threadIdx.x;
            if (at < BN * CHUNKS)
                copy_async_16(to + at / CHUNKS * PITCH + at % CHUNKS * 16, u_from[i] + offset);
        }
    };
    auto load_v = [&](int step) {
        if (step >= steps) return;
        u8* to = shared + step % STAGES * STAGE;
        int offset = row_of_part(place, step / (CV / BK)) * CV + step % (CV / BK) * BK;
        UNROLL for (int i = 0; i < LOADS_V; i++) {
            int at = i * 256 + threadIdx.x;
            if (at < BM * CHUNKS)
                copy_async_16(to + at / CHUNKS * PITCH + at % CHUNKS * 16, v_from[i] + offset);
        }
    };

    int row = warp / WARPS_N * WM, column = warp % WARPS_N * WN;
    const u8* a_from = shared + (row + lane % 16) * PITCH + lane / 16 * CHUNK;
    const u8* b_from =
        shared + (BM + column + lane / 16 * 8 + lane % 8) * PITCH + lane / 8 % 2 * CHUNK;
    float sum[MI][NI][4] = {};
#if OPERAND == 3
    float total[MI][NI][4] = {};
#endif
    // Filters come while the input is still transformed: a kernel that makes U, if there is one,
    // ends before that transform lets this kernel start.
    UNROLL for (int s = 0; s < STAGES - 1; s++) load_u(s);
    wait_for_previous();
    start_next();
    UNROLL for (int s = 0; s < STAGES - 1; s++) {
        load_v(s);
        copy_async_commit();
    }
    NO_UNROLL for (int step = 0; step < steps; step++) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        load_u(step + STAGES - 1);
        load_v(step + STAGES - 1);
        copy_async_commit();
        int stage = step % STAGES * STAGE;
        UNROLL for (int k = 0; k < BYTES; k += STEP) {
            u32 a[MI][4], b[NI / 2][4];
            UNROLL for (int i = 0; i < MI; i++)
                load_matrix_x4(a[i], a_from + stage + i * 16 * PITCH + k);
            UNROLL for (int j = 0; j < NI / 2; j++)
                load_matrix_x4(b[j], b_from + stage + j * 16 * PITCH + k);
            multiply_all(sum, a, b);
        }
#if OPERAND == 3
        if (step % FLUSH == FLUSH - 1 || step == steps - 1) {
            UNROLL for (int i = 0; i < MI; i++)
                UNROLL for (int j = 0; j < NI; j++)
                    UNROLL for (int r = 0; r < 4; r++) {
                        total[i][j][r] += sum[i][j][r];
                        sum[i][j][r] = step == steps - 1 ? total[i][j][r] : 0.0f;
                    }
        }
#endif
    }
    w += (size_t)point * tiles * KM;
    UNROLL for (int i = 0; i < MI; i++)
        UNROLL for (int j = 0; j < NI; j++)
            UNROLL for (int half = 0; half < 2; half++) {
                int tile = first_tile + row + i * 16 + half * 8 + lane / 4;
                int plane = first_plane + column + j * 8 + lane % 4 * 2;
                if (tile < tiles && plane < KM)
                    *(float2*)&w[(size_t)tile * KM + plane] =
                        make_float2(sum[i][j][2 * half], sum[i][j][2 * half + 1]);
            }
}
