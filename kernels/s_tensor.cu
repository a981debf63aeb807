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
//   6  wgmma (WGMMA 1): a warpgroup multiplies 64 cells by all planes of a block, weights straight
//      from shared memory, cells from registers, which ldmatrix fills for the next step while the
//      tensor cores work on this one.
//   7  COMPACT: where nothing is heard there is no response. The cells with v > 0 are listed, and
//      the rows of the product are the cells of the list; the others are set to 0. On handwritten
//      digits about 60 % of US1, 50 % of US2 and 40 % of US3 hear nothing.
//   8  DEPTH: operands of the next steps are on their way while these are multiplied (wgmma:
//      DEPTH steps a group).
//   9  cells of US2 and US3 that hear something but cannot respond are not listed either: a bound
//      of the excitation costs 1 / planes of it. About 40 % of US2 and half of US3 are left.
//  10  JOINED: 40 channels are two and a half steps deep, so two taps share five, not three each.
//  11  CHUNKS: US4 sees all of UC3, so that few digits fit in shared memory and weights are read once
//      for these few. A part of the channels of twice as many digits fits; all planes in one block.
//  12  CLUSTER: blocks that share a window (KSPLIT) read each other's shared memory, where all of
//      them find room at once: no way through global memory, and each responds for a part.
//
// Operands: MODE 0 half, 3 float32 as two halves. Sums are float32.
#include "s_tensor.cuh"

// maps (batch, IN_W, IN_W, IN_C); weights packed by neocog/cuda/s_tensor.py; c (KSIZE, KSIZE);
// profile (KSIZE, KSIZE), the largest norm of a plane's weights at each tap, and silence (planes,
// padded), both in the units of the weights as unit 1/scale makes v; out (batch, OUT, OUT, OUT_C).
// partial and arrivals serve KSPLIT.
// Grid: groups of digits x BANDS, slices of planes, KSPLIT.
KERNEL(BOUNDS) CLUSTERED
s_tensor(const map_t* __restrict__ maps, const u32* __restrict__ weights,
         const float* __restrict__ c, const float* __restrict__ profile,
         const float* __restrict__ silence, out_t* __restrict__ out,
         float* __restrict__ partial, u32* __restrict__ arrivals, int batch, float theta,
         float unit) {
    DYNAMIC_SHARED(shared);
    float* const v = (float*)shared;
    float* const energy = v + (CELLS + 3) / 4 * 4;
    float* const silences = energy + (PIXELS + 3) / 4 * 4;
    float* const c_shared = silences + WN * NT * 8;
    float* const profile_shared = c_shared + (KY_PER * KSIZE + 3) / 4 * 4;
    u16* const list = (u16*)(profile_shared + (BOUNDED ? (KSIZE * KSIZE + 3) / 4 * 4 : 0));
    u8* const input = (u8*)(list + (COMPACT ? (CELLS + 7) / 8 * 8 : 0));
    u32* const stages = (u32*)(input + INPUT_BYTES * PARTS);

    const int lane = threadIdx.x % 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const int wm = warp % WM, wn = warp / WM % WN, wk = warp / (WM * WN);
    const int digit = blockIdx.x / BANDS * GROUP, band = blockIdx.x % BANDS;
    const int first_row = band * ROWS, ky0 = blockIdx.z * KY_PER;
    weights += ((u64)blockIdx.y * KSPLIT + blockIdx.z) * (CHUNKS * TAPS * TAP_WORDS);

    start_next();
    load_stage(stages, weights, 0);
    NO_UNROLL for (int i = threadIdx.x; i < KY_PER * KSIZE; i += THREADS)
        copy_async_4(c_shared + i, c + ky0 * KSIZE + i);
    if (BOUNDED) {
        NO_UNROLL for (int i = threadIdx.x; i < KSIZE * KSIZE; i += THREADS)
            copy_async_4(profile_shared + i, profile + i);
    }
    NO_UNROLL for (int i = threadIdx.x; i < WN * NT * 8; i += THREADS)
        copy_async_4(silences + i, silence + blockIdx.y * (WN * NT * 8) + i);
    wait_for_previous();
    load_input(input, maps, digit, batch, first_row + ky0, 0);
    copy_async_commit();
    const int first_plane = blockIdx.y * (WN * NT * 8);
    const int cells_there = GROUP > 1 ? min(GROUP, batch - digit) * ROWS * OUT
                                      : min(ROWS, OUT - first_row) * OUT;
    out_t* const first = out + ((u64)digit * OUT + first_row) * OUT * OUT_C + first_plane;
    if (COMPACT) clear(first, cells_there, min(WN * NT * 8, OUT_C - first_plane));
    copy_async_wait<0>();
    fence_async_proxy();
    __syncthreads();
    sum_planes(energy, input, 0);
    __syncthreads();
    if (CHUNKS == 1) inhibit(v, energy, c_shared, profile_shared, unit, theta);

#if HELD  // few weights: in registers for good
    u32 held[TAPS * STEPS][PARTS][NT][2];
    UNROLL for (int i = 0; i < TAPS * STEPS; i++)
        UNROLL for (int part = 0; part < PARTS; part++)
            load_weights(held[i][part], stages + (i * WN + wn) * SLICE_WORDS + part * NT * 64, lane);
#endif
#if COMPACT
    const int count = __shfl_sync(~0u, list_cells(list, v, cells_there), 0);
#else
    const int count = cells_there;
#endif
    const int passes = (count + WM * MT * 16 - 1) / (WM * MT * 16);

    NO_UNROLL for (int pass = 0; pass < passes; pass++) {
        float sum[MT][NT][4] = {};
#if FLUSH  // tensor cores cut sums off; short sums are added up by ordinary addition
        float total[MT][NT][4] = {};
        auto flush = [&](bool last) {
            UNROLL for (int m = 0; m < MT; m++)
                UNROLL for (int n = 0; n < NT; n++)
                    UNROLL for (int i = 0; i < 4; i++) {
                        total[m][n][i] += sum[m][n][i];
                        sum[m][n][i] = last ? total[m][n][i] : 0.0f;
                    }
        };
#endif
        const u8* rows[MT];  // where this lane's share of a tile's 16 cells begins
        int lower[MT];
        UNROLL for (int m = 0; m < MT; m++) {
            int row = tile_of(pass, wm, m) * 16 + (PAIR ? lane / 4 : lane % 16);
            int window = window_of(cell_of(list, row, count));
            rows[m] = input + window * PITCH + (PAIR ? lane % 4 * CELL_BYTES : lane / 16 * 16);
            lower[m] = PAIR ? (window_of(cell_of(list, row + 8, count)) - window) * PITCH : 0;
        }
        NO_UNROLL for (int stage = 0; stage < ALL_STAGES; stage++) {
            const int turn = pass * ALL_STAGES + stage;
            if (ALL_STAGES > 1) {
                copy_async_wait<0>();
                fence_async_proxy();
                __syncthreads();
                if (CHUNKS > 1 && stage > 0 && stage % STAGES == 0) {  // all have read the last one
                    load_input(input, maps, digit, batch, first_row + ky0, stage / STAGES);
                    copy_async_commit();
                    copy_async_wait<0>();
                    __syncthreads();
                    sum_planes(energy, input, stage / STAGES);
                }
                if (turn + 1 < passes * ALL_STAGES) {
                    load_stage(stages + (turn + 1) % 2 * (STAGE_TAPS * TAP_WORDS), weights,
                               (stage + 1) % ALL_STAGES);
                    copy_async_commit();
                }
            }
            const u32* tap_weights =
                stages + (ALL_STAGES > 1 ? turn % 2 : 0) * (STAGE_TAPS * TAP_WORDS) + wn * SLICE_WORDS;
            const int first_tap = WITHIN_CHUNK(stage) * STAGE_TAPS;
            const int taps = min(STAGE_TAPS, TAPS - first_tap);
#if WGMMA
            const int turns = (taps - wk + WK - 1) / WK * STEPS / DEPTH;
            auto gather = [&](u32(&a)[DEPTH][PARTS][MT][4], int turn) {
                UNROLL for (int d = 0; d < DEPTH; d++) {
                    const int i = turn * DEPTH + d;
                    const int at = place_of(first_tap + wk + i / STEPS * WK, i % STEPS);
                    UNROLL for (int part = 0; part < PARTS; part++)
                        UNROLL for (int m = 0; m < MT; m++) {
                            const u8* from = rows[m] + part * INPUT_BYTES + at;
                            load_cells(a[d][part][m], from, from + lower[m]);
                        }
                }
            };
            auto multiply = [&](const u32(&a)[DEPTH][PARTS][MT][4], int turn) {
                wgmma_fence();
                UNROLL for (int d = 0; d < DEPTH; d++) {
                    const int i = turn * DEPTH + d;
                    const u32* from = tap_weights + (wk + i / STEPS * WK) * TAP_WORDS +
                                      i % STEPS * (WN * SLICE_WORDS);
                    UNROLL for (int m = 0; m < MT; m++) {
                        if (m > 0 && COMPACT && tile_of(pass, wm, m) / 4 * 64 >= count) break;
                        if (SPLIT_HALF) {
                            product(sum[m], a[d][PARTS - 1][m], from);
                            product(sum[m], a[d][0][m], from + NT * 64);
                        }
                        product(sum[m], a[d][0][m], from);
                    }
                }
                wgmma_commit();
            };
            u32 a[DEPTH][PARTS][MT][4], next[DEPTH][PARTS][MT][4];
            gather(a, 0);
            NO_UNROLL for (int i = 0; i < turns; i += 2) {
                multiply(a, i);
                if (i + 1 < turns) {
                    wgmma_wait<1>();
                    gather(next, i + 1);
                    multiply(next, i + 1);
                    wgmma_wait<1>();
                    if (i + 2 < turns) gather(a, i + 2);
                }
#if FLUSH
                if ((i + 2) % FLUSH_TURNS == 0) {
                    wgmma_wait<0>();
                    flush(false);
                }
#endif
            }
            wgmma_wait<0>();
#elif HELD
            UNROLL for (int m = 0; m < MT; m++) {
                if (tile_of(pass, wm, m) * 16 >= count) break;
                UNROLL for (int i = 0; i < TAPS * STEPS; i++) {
                    u32 a[PARTS][4];
                    UNROLL for (int part = 0; part < PARTS; part++) {
                        const u8* from = rows[m] + part * INPUT_BYTES + place_of(i / STEPS, i % STEPS);
                        load_cells(a[part], from, from + lower[m]);
                    }
                    UNROLL for (int n = 0; n < NT; n++) {
                        if (SPLIT_HALF) {
                            mma_half(sum[m][n], a[PARTS - 1], held[i][0][n][0], held[i][0][n][1]);
                            mma_half(sum[m][n], a[0], held[i][PARTS - 1][n][0],
                                    held[i][PARTS - 1][n][1]);
                        }
                        mma_half(sum[m][n], a[0], held[i][0][n][0], held[i][0][n][1]);
                    }
                }
            }
#else
            const int turns = (taps - wk + WK - 1) / WK * STEPS;
            auto fetch = [&](u32(&a)[PARTS][MT][4], u32(&b)[PARTS][NT][2], int i) {
                const int tap = wk + i / STEPS * WK, step = i % STEPS;
                const int at = place_of(first_tap + tap, step);
                const u32* from = tap_weights + tap * TAP_WORDS + step * (WN * SLICE_WORDS);
                UNROLL for (int part = 0; part < PARTS; part++) {
                    load_weights(b[part], from + part * NT * 64, lane);
                    UNROLL for (int m = 0; m < MT; m++)
                        load_cells(a[part][m], rows[m] + part * INPUT_BYTES + at,
                                   rows[m] + part * INPUT_BYTES + lower[m] + at);
                }
            };
            auto multiply = [&](const u32(&a)[PARTS][MT][4], const u32(&b)[PARTS][NT][2]) {
                UNROLL for (int m = 0; m < MT; m++) {
                    if (SPLIT_HALF) {
                        UNROLL for (int n = 0; n < NT; n++) {
                            mma_half(sum[m][n], a[PARTS - 1][m], b[0][n][0], b[0][n][1]);
                            mma_half(sum[m][n], a[0][m], b[PARTS - 1][n][0], b[PARTS - 1][n][1]);
                        }
                    }
                    UNROLL for (int n = 0; n < NT; n++)
                        mma_half(sum[m][n], a[0][m], b[0][n][0], b[0][n][1]);
                }
            };
#if DEPTH > 1  // the next step's operands come while this one's are multiplied
            u32 a[PARTS][MT][4], b[PARTS][NT][2], next_a[PARTS][MT][4], next_b[PARTS][NT][2];
            fetch(a, b, 0);
            NO_UNROLL for (int i = 0; i < turns; i += 2) {
                if (i + 1 < turns) fetch(next_a, next_b, i + 1);
                multiply(a, b);
                if (i + 1 < turns) {
                    if (i + 2 < turns) fetch(a, b, i + 2);
                    multiply(next_a, next_b);
                }
#if FLUSH
                if ((i + 2) % 12 == 0) flush(false);
#endif
            }
#else
            NO_UNROLL for (int tap = 0; tap < turns; tap += STEPS) {
                UNROLL for (int step = 0; step < STEPS; step++) {
                    u32 a[PARTS][MT][4], b[PARTS][NT][2];
                    fetch(a, b, tap + step);
                    multiply(a, b);
                }
#if FLUSH
                if ((tap / STEPS + 1) % (STEPS > 12 ? 1 : 12 / STEPS) == 0) flush(false);
#endif
            }
#endif
#endif
#if FLUSH
            flush(stage == ALL_STAGES - 1);
#endif
        }
        if (CHUNKS > 1) {
            __syncthreads();  // all have summed the last chunk's planes
            inhibit(v, energy, c_shared, profile_shared, unit, theta);
        }
        if (SPREAD || (pass == 0 && !COMPACT)) __syncthreads();  // v is complete, the input read

#if SPREAD
        // The lanes' sums go to shared memory, four planes of a cell an item; all threads then add
        // up what the warps (WK) and the blocks (KSPLIT) have of an item and make the response.
        float* const sums = (float*)input;
        const int slot = (warp * MT * NT * 4) * 32 + lane;
        UNROLL for (int m = 0; m < MT; m++)
            UNROLL for (int n = 0; n < NT; n++)
                UNROLL for (int i = 0; i < 4; i++)
                    sums[slot + ((m * NT + n) * 4 + i) * 32] = sum[m][n][i];
        __syncthreads();
#if KSPLIT > 1
        const int part = ITEMS * 4 + (CELLS + 3) / 4 * 4;
        const int tile = blockIdx.y * gridDim.x + blockIdx.x;
        float* const own = CLUSTER ? sums + THREADS * MT * NT * 4
                                   : partial + ((u64)tile * KSPLIT + blockIdx.z) * part;
        NO_UNROLL for (int i = threadIdx.x; i < ITEMS; i += THREADS)
            ((float4*)own)[i] = sum_of_warps(sums, i);
        NO_UNROLL for (int i = threadIdx.x; i < CELLS; i += THREADS) own[ITEMS * 4 + i] = v[i];
#if CLUSTER
        cluster_sync();
#else
        __shared__ u32 came;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) came = atomicAdd(arrivals + tile, 1u);
        __syncthreads();
        if (came != KSPLIT - 1) return;  // the last to come sums them in the order of the window
        __threadfence();
        if (threadIdx.x == 0) arrivals[tile] = 0;
#endif
#endif
        const int start = CLUSTER ? (warp * KSPLIT + blockIdx.z) * 32 + lane : threadIdx.x;
        NO_UNROLL for (int i = start; i < ITEMS; i += THREADS * (CLUSTER ? KSPLIT : 1)) {
            const Item item = item_of(i);
            if (item.row >= count || first_plane + item.plane >= OUT_C) continue;
            const int cell = cell_of(list, item.row, count);
#if KSPLIT > 1
            float4 e = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            float v2 = 0.0f;
            UNROLL for (int z = 0; z < KSPLIT; z++) {
                const float* from = PART_OF(z);
                const float4 more = LOAD_PART((const float4*)from + i);
                v2 += LOAD_PART(from + ITEMS * 4 + cell);
                e.x += more.x, e.y += more.y, e.z += more.z, e.w += more.w;
            }
            const float heard = finished(v2, unit);
#else
            const float4 e = sum_of_warps(sums, i);
            const float heard = v[cell];
#endif
            respond(first + cell * OUT_C, silences, item.plane, item.two, e, heard, theta);
        }
#if CLUSTER
        cluster_wait();  // none leaves while others read its part
#endif
#else
        UNROLL for (int m = 0; m < MT; m++) {
            UNROLL for (int half = 0; half < 2; half++) {
                const int row = tile_of(pass, wm, m) * 16 + half * 8 + lane / 4;
                if (row >= count) continue;
                const int cell = cell_of(list, row, count);
                out_t* const at = first + cell * OUT_C;
                UNROLL for (int n = 0; n < NT; n += 2) {
                    const bool two = n == NT - 1;
                    const int plane = wn * NT * 8 + n * 8 + lane % 4 * (two ? 2 : 4);
                    const float(&low)[4] = sum[m][n], (&high)[4] = sum[m][two ? n : n + 1];
                    if (first_plane + plane < OUT_C)
                        respond(at, silences, plane, two,
                                make_float4(low[half * 2], low[half * 2 + 1], high[half * 2],
                                            high[half * 2 + 1]),
                                v[cell], theta);
                }
            }
        }
#endif
    }
}
