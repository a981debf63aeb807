// S-cells by decomposed Winograd convolution in one kernel, half operands on tensor cores: V stays in
// shared memory and W in registers. For parts as large as the tiles (R0 == M, no others), which share
// their inputs. winograd.cu has the ladder; there V and W go through the L2 cache, which takes longer
// than the products.
//
// A block of THREADS threads takes ROWS rows of tiles of one digit. It transforms their input into shared memory,
// V[point] (starts of rows, starts of columns, CV channels). A part's operand is the same rows of V,
// some starts on, so that ldmatrix gathers it. A warp makes 16 tiles x 16 planes, a row of points at a
// time: sums of one tile and plane at all points lie in one register each of the same lane, which
// transforms them back.
#include "winograd.cuh"

static_assert(P1 == 0 && R0 == M && MAP == 1 && CV % 16 == 0, "parts share inputs; halves");
constexpr int SX = TILES + P0 - 1, SY = ROWS + P0 - 1;
constexpr int PITCH = 2 * CV + 16;  // bytes from a start to the next: ldmatrix without conflicts
constexpr int PLANE = SY * SX * PITCH, STEPS = CV / 16, PARTS = P0 * P0;

DEVICE void transform_into(u8* shared, const u16* __restrict__ maps, int first) {
    for (int i = threadIdx.x; i < SY * SX * (CV / 2); i += THREADS) {
        int c = i % (CV / 2) * 2, start = i / (CV / 2);
        int top = (first + start / SX) * M, left = start % SX * M;
        u32 d[N0][N0];
        UNROLL for (int y = 0; y < N0; y++)
            UNROLL for (int x = 0; x < N0; x++) {
                bool inside = top + y < WIDTH && left + x < WIDTH && c < CHANNELS;
                d[y][x] = inside ? *(const u32*)&maps[((top + y) * WIDTH + left + x) * CHANNELS + c] : 0;
            }
        float low[N0 * N0];
        input_tile<0, 0>([&](int y, int x) { return floats_of_half2(d[y][x]).x; },
                         [&](int point, float value) { low[point] = value; });
        u8* to = shared + start * PITCH + 2 * c;
        input_tile<0, 0>([&](int y, int x) { return floats_of_half2(d[y][x]).y; },
                         [&](int point, float value) {
                             *(u32*)(to + point * PLANE) = half2_of(low[point], value);
                         });
    }
}

#define BOUNDS THREADS, 512 / THREADS  // 128 registers a thread
// u: for 16 planes, point, part, 16 channels: what each lane multiplies. v (batch, OUT, OUT).
KERNEL(BOUNDS) s_winograd(const u16* __restrict__ maps, const uint4* __restrict__ u,
                          const float* __restrict__ v, const float* __restrict__ silence,
                          float theta, u16* __restrict__ y) {
    DYNAMIC_SHARED(shared);
    wait_for_previous();
    start_next();
    const int first = blockIdx.x * ROWS, image = blockIdx.y;
    const int lane = threadIdx.x % 32, count = min(ROWS, TILES - first) * TILES;
    transform_into(shared, maps + (size_t)image * WIDTH * WIDTH * CHANNELS, first);
    __syncthreads();

    const int along = (count + 15) / 16;  // warps that share planes read the same u
    NO_UNROLL for (int unit = threadIdx.x / 32; unit < along * ((KM + 15) / 16); unit += THREADS / 32) {
        const int base = unit % along * 16, group = unit / along;
        const int tile = min(base + lane % 16, count - 1);
        const u8* a_from = shared + (tile / TILES * SX + tile % TILES) * PITCH + lane / 16 * 16;
        const uint4* b_from = u + (size_t)group * N0 * N0 * PARTS * STEPS * 32 + lane;
        float sum[M][M][2][4] = {};
        UNROLL for (int i = 0; i < N0; i++) {
            float row[N0][2][4] = {};
            UNROLL_BY(STEPS == 1 ? P0 : 1) for (int part = 0; part < PARTS; part++) {
                const u8* from = a_from + (part / P0 * SX + part % P0) * PITCH + i * N0 * PLANE;
                const uint4* b_part = b_from + (i * N0 * PARTS + part) * STEPS * 32;
                UNROLL for (int k = 0; k < STEPS; k++)
                    UNROLL for (int j = 0; j < N0; j++) {
                        u32 a[4];
                        load_matrix_x4(a, from + j * PLANE + k * 32);
                        const uint4 b = b_part[(j * PARTS * STEPS + k) * 32];
                        mma_half(row[j][0], a, b.x, b.y);
                        mma_half(row[j][1], a, b.z, b.w);
                    }
            }
            UNROLL for (int n = 0; n < 2; n++)
                UNROLL for (int r = 0; r < 4; r++) {
                    float w[N0], cells[M];
                    UNROLL for (int j = 0; j < N0; j++) w[j] = row[j][n][r];
                    transform_output<0>(cells, w);
                    UNROLL for (int a = 0; a < M; a++)
                        UNROLL for (int b = 0; b < M; b++)
                            sum[a][b][n][r] =
                                weighed(sum[a][b][n][r], output0[a * N0 + i], cells[b]);
                }
        }
        UNROLL for (int half = 0; half < 2; half++) {
            const int own = base + half * 8 + lane / 4;
            const int top = (first + own / TILES) * M, left = own % TILES * M;
            UNROLL for (int n = 0; n < 2; n++) {
                const int plane = group * 16 + n * 8 + lane % 4 * 2;
                if (own >= count || plane >= KM) continue;
                const float one = silence[plane], other = silence[plane + 1];
                UNROLL for (int a = 0; a < M; a++)
                    UNROLL for (int b = 0; b < M; b++) {
                        if (top + a >= OUT || left + b >= OUT) continue;
                        const size_t cell = ((size_t)image * OUT + top + a) * OUT + left + b;
                        const float *e = &sum[a][b][n][2 * half], inhibition = v[cell];
                        *(u32*)&y[cell * KM + plane] =
                            half2_of(winograd_s_response(e[0], inhibition, theta, one),
                                     winograd_s_response(e[1], inhibition, theta, other));
                    }
            }
        }
    }
}
