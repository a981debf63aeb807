// Convolution and average pooling as one operation: a direct sum as an implicit matrix product on
// tensor cores. The mean of p x p neighbouring results of a convolution is the convolution, at stride
// p, of the means of p x p neighbouring inputs: a quarter of the products at p = 2.
//
// Rows of the product are outputs, in patches of 8 x 8; columns are planes; the inner dimension runs
// over chunks of channels, then the taps of the filter. For a chunk the inputs that a patch needs
// come to shared memory once, are summed there, and serve all taps: a tap is an address.
//
// Ladder of versions (what each added):
//   1  mma.sync: all warps sum the boxes of a chunk, then multiply; inputs and weights of what
//      follows are on their way meanwhile.
//   2  wgmma (WGMMA 1): warpgroups that only multiply, both operands from shared memory; beside them
//      a warp that has weights brought by bulk copies and warps that load inputs and sum boxes of the
//      next chunk. Barriers in shared memory pass the buffers to and fro; a block takes one item
//      after another, and the next item's loads begin while this one's sums are stored.
//   3  SPLIT: blocks share a sum where there are few outputs; the last to come adds the parts up in
//      the order of the channels.
//   4  MODE 3: float32 results from TF32 operands: each the sum of two, three products, short sums.
// BOX 1 leaves out the sums: a plain strided convolution, of what box_sums.cu wrote for instance.
#include "conv_avgpool.cuh"

#if WGMMA
// GROUPS warpgroups that multiply, each PATCHES / GROUPS patches by all PLANES; PRODUCER_WARPS that
// bring operands, the first of them weights.
#define CONSUMERS (GROUPS * 128)
#define LOADERS ((PRODUCER_WARPS - 1) * 32)
#define THREADS (CONSUMERS + PRODUCER_WARPS * 32)
#define MT (PATCHES / GROUPS)
#define BARRIERS (2 * STAGES + 2 * SUM_BUFFERS + 1 + GROUPS)
#define BARRIER_BYTES 16
#define NEXT_ITEM (SPLIT ? 1 << 30 : (int)gridDim.x)  // blocks that share sums take one item
#else
// WARPS_M x WARPS_N warps.
#define THREADS (WARPS_M * WARPS_N * 32)
#define MT (PATCHES * 4 / WARPS_M)  // tiles of 16 cells of a warp
#define NT (TILES / WARPS_N)
#endif
#define BOUNDS THREADS, 1

#if WGMMA
// A place in a ring of buffers, and in which of its rounds.
template <int count>
struct Ring {
    u32 at = 0, round = 0;
};
template <int count>
DEVICE void advance(Ring<count>& ring) {
    if (++ring.at == count) ring.at = 0, ring.round ^= 1;
}
#endif

// x (batch, height, width, channels); weights packed by experiments/convpool/fused.py; out (batch,
// out_height, out_width, planes). partial and arrivals serve SPLIT.
KERNEL(BOUNDS)
conv_avgpool(const map_t* __restrict__ x, const u32* __restrict__ weights, map_t* __restrict__ out,
             float* __restrict__ partial, u32* __restrict__ arrivals, int batch, int height,
             int width, int channels, int out_height, int out_width, int planes, int padding,
             int splits) {
    DYNAMIC_SHARED(shared);
    const Sizes s = sizes_of(batch, height, width, channels, out_height, out_width, planes,
                             padding, splits);
    const int lane = threadIdx.x % 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
#if WGMMA
    auto barrier = [&](int i) { return (barrier_t*)(shared + i * BARRIER_BYTES); };
    auto full_b = [&](int i) { return barrier(i); };
    auto empty_b = [&](int i) { return barrier(STAGES + i); };
    auto full_s = [&](int i) { return barrier(2 * STAGES + i); };
    auto empty_s = [&](int i) { return barrier(2 * STAGES + SUM_BUFFERS + i); };
    barrier_t* const loaders = barrier(2 * STAGES + 2 * SUM_BUFFERS);
    u32* const table = (u32*)(shared + (BARRIERS * BARRIER_BYTES + 127) / 128 * 128);
    u8* const sums = (u8*)table + TABLE_BYTES;
    u8* const raw = sums + SUM_BUFFERS * SUM_BYTES;
    u8* const stages = raw + RAW_BUFFERS * RAW_BYTES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) barrier_init(full_b(i), 1), barrier_init(empty_b(i), GROUPS * 4);
        for (int i = 0; i < SUM_BUFFERS; i++)
            barrier_init(full_s(i), LOADERS), barrier_init(empty_s(i), GROUPS * 4);
        barrier_init(loaders, LOADERS);
        for (int i = 0; i < GROUPS; i++) barrier_init(loaders + (i + 1) * (BARRIER_BYTES / (int)sizeof(barrier_t)), 128);
        barriers_ready();
    }
    __syncthreads();

    if (warp < GROUPS * 4) {
        const int group = warp / 4, row = warp % 4 * 2;
#if SPLIT
        barrier_t* const together = loaders + (group + 1) * (BARRIER_BYTES / (int)sizeof(barrier_t));
        u32 together_round = 0;
        auto sync = [&] {
            barrier_arrive(together);
            barrier_wait(together, together_round);
            together_round ^= 1;
        };
#endif
        Ring<STAGES> stage;
        Ring<SUM_BUFFERS> buffer;
        NO_UNROLL for (int item = blockIdx.x; item < s.items; item += NEXT_ITEM) {
            float sum[MT][TILES][4];
#if FLUSH
            float total[MT][TILES][4] = {};
#endif
            bool add = false;
            int held_stage = -1, held_buffer = -1;  // what products under way may still read
            auto release = [&] {
                __syncwarp();
                if (lane == 0) {
                    if (held_stage >= 0) barrier_arrive(empty_b(held_stage));
                    if (held_buffer >= 0) barrier_arrive(empty_s(held_buffer));
                }
                held_stage = held_buffer = -1;
            };
            const int end = end_chunk(s, item);
            NO_UNROLL for (int chunk = first_chunk(s, item); chunk < end; chunk++) {
                barrier_wait(full_s(buffer.at), buffer.round);
                const u8* const cells = sums + buffer.at * SUM_BYTES + group * MT * PATCH_BYTES;
                NO_UNROLL for (int tap = 0; tap < TAPS; tap++) {
                    barrier_wait(full_b(stage.at), stage.round);
                    const u8* const b = stages + stage.at * STAGE_BYTES;
                    const u8* const a = cells + tap_bytes(tap);
                    const matrix_t rows = matrix_of(a, UNIT_BYTES, STRIDE * ROW_BYTES);
                    const matrix_t columns = matrix_of(b, PLANES * 16, 128);
                    wgmma_fence();
                    UNROLL for (int i = 0; i < STEPS; i++)
                        UNROLL for (int m = 0; m < MT; m++) {
                            auto multiply = [&](int part_a, int part_b, bool onto) {
                                const matrix_t to = further(columns, (part_b * UNITS + 2 * i) * (PLANES * 16));
                                multiply_shared<TILES>(
                                    sum[m],
                                    further(rows, (part_a * UNITS + 2 * i) * UNIT_BYTES + m * PATCH_BYTES),
                                    to, onto);
                            };
                            if (PARTS == 2) {  // the small products first
                                multiply(PARTS - 1, 0, add || i > 0);
                                multiply(0, PARTS - 1, true);
                            }
                            multiply(0, 0, PARTS == 2 || add || i > 0);
                        }
                    products_commit();
                    add = true;
                    products_wait<1>();
                    release();
                    held_stage = stage.at;
                    advance(stage);
                    const bool last = tap == TAPS - 1;
                    if (last) held_buffer = buffer.at;
                    if ((FLUSH && (last || tap % FLUSH_TAPS == FLUSH_TAPS - 1)) ||
                        (SUM_BUFFERS == 1 && last)) {
                        products_wait<0>();
                        release();
                    }
#if FLUSH
                    if (last || tap % FLUSH_TAPS == FLUSH_TAPS - 1) {
                        add = false;
                        UNROLL for (int m = 0; m < MT; m++) {
                            products_visible(sum[m]);
                            UNROLL for (int n = 0; n < TILES; n++)
                                UNROLL for (int j = 0; j < 4; j++) total[m][n][j] += sum[m][n][j];
                        }
                    }
#endif
                }
                advance(buffer);
            }
            products_wait<0>();
            release();
#if FLUSH
            auto& result = total;
#else
            auto& result = sum;
            UNROLL for (int m = 0; m < MT; m++) products_visible(sum[m]);
#endif
#if SPLIT
            const int thread = threadIdx.x % 128, each = MT * TILES * 4 * 128;
            float* const part = partial + ((u64)item * GROUPS + group) * each + thread * 4;
            UNROLL for (int m = 0; m < MT; m++)
                store_part(part + m * (TILES * 4 * 128), result[m], 128);
            __threadfence();
            sync();
            __shared__ u32 came[GROUPS];
            u32* const arrived = arrivals + item / s.splits * GROUPS + group;
            if (thread == 0) {
                came[group] = atomicAdd(arrived, 1u);
                if ((int)came[group] == s.splits - 1) *arrived = 0;
            }
            sync();
            if ((int)came[group] != s.splits - 1) break;
            __threadfence();
            NO_UNROLL for (int z = 0; z < s.splits; z++)
                UNROLL for (int m = 0; m < MT; m++)
                    add_part(result[m],
                             part + ((long long)z - item % s.splits) * (GROUPS * each) + m * (TILES * 4 * 128),
                             128, z == 0);
#endif
            UNROLL for (int m = 0; m < MT; m++) {
                const Patch patch = patch_of(s, tile_of(s, item) * PATCHES + group * MT + m);
                UNROLL for (int half = 0; half < 2; half++)
                    store_row(out, s, patch, row + half, lane / 4, slice_of(s, item) * PLANES, result[m], half);
            }
            if (SPLIT) break;
        }
    } else {
        if (warp == GROUPS * 4) {  // weights
            Ring<STAGES> stage;
            NO_UNROLL for (int item = blockIdx.x; item < s.items; item += NEXT_ITEM) {
                const int first = first_chunk(s, item);
                const u8* from = (const u8*)weights +
                                 ((u64)slice_of(s, item) * s.chunks + first) * TAPS * STAGE_BYTES;
                const int count = (end_chunk(s, item) - first) * TAPS;
                NO_UNROLL for (int i = 0; i < count; i++) {
                    barrier_wait(empty_b(stage.at), stage.round ^ 1);
                    if (lane == 0) {
                        barrier_expect(full_b(stage.at), STAGE_BYTES);
                        bulk_copy(stages + stage.at * STAGE_BYTES, from, STAGE_BYTES, full_b(stage.at));
                    }
                    __syncwarp();
                    from += STAGE_BYTES;
                    advance(stage);
                }
            }
        } else {  // inputs and their sums
            const int thread = threadIdx.x - CONSUMERS - 32;
            u32 round = 0;
            auto sync = [&] {
                barrier_arrive(loaders);
                barrier_wait(loaders, round);
                round ^= 1;
            };
            Ring<SUM_BUFFERS> buffer;
            int item = blockIdx.x, chunk = first_chunk(s, item), at = 0;
            list_places(table, s, tile_of(s, item), thread, LOADERS);
            sync();
            load_raw(raw, table, x, s, chunk, thread, LOADERS);
            copy_async_commit();
            NO_UNROLL while (item < s.items) {
                int next_item = item, next_chunk = chunk + 1;
                if (next_chunk >= end_chunk(s, item)) {
                    next_item += NEXT_ITEM;
                    next_chunk = first_chunk(s, next_item);
                }
                auto load_next = [&](u8* to) {
                    if (next_item >= s.items) return;
                    if (next_item != item) {
                        list_places(table, s, tile_of(s, next_item), thread, LOADERS);
                        sync();
                    }
                    load_raw(to, table, x, s, next_chunk, thread, LOADERS);
                    copy_async_commit();
                };
                copy_async_wait<0>();
                sync();  // this chunk's inputs are there, those of the chunk before are read
                if (RAW_BUFFERS == 2) load_next(raw + (at ^ 1) * RAW_BYTES);
                barrier_wait(empty_s(buffer.at), buffer.round ^ 1);
                sum_boxes(sums + buffer.at * SUM_BYTES, raw + at * RAW_BYTES, thread, LOADERS);
                fence_async_proxy();
                barrier_arrive(full_s(buffer.at));
                advance(buffer);
                if (RAW_BUFFERS == 2) at ^= 1;
                else {
                    sync();
                    load_next(raw);
                }
                item = next_item, chunk = next_chunk;
            }
        }
    }
#else
    u32* const table = (u32*)shared;
    u8* const sums = shared + TABLE_BYTES;
    u8* const raw = sums + SUM_BYTES;
    u8* const stages = raw + RAW_BYTES;
    const int wm = warp % WARPS_M, wn = warp / WARPS_M, item = blockIdx.x, tile = tile_of(s, item);
    const int first = first_chunk(s, item), end = end_chunk(s, item), count = (end - first) * TAPS;
    const u8* const from =
        (const u8*)weights + ((u64)slice_of(s, item) * s.chunks + first) * TAPS * STAGE_BYTES;
    auto load_stage = [&](int i) {
        if (i < count)
            NO_UNROLL for (int j = threadIdx.x; j < STAGE_BYTES / 16; j += THREADS)
                copy_async_16(stages + i % STAGES * STAGE_BYTES + j * 16,
                              from + (u64)i * STAGE_BYTES + j * 16);
    };
    list_places(table, s, tile, threadIdx.x, THREADS);
    __syncthreads();
    load_raw(raw, table, x, s, first, threadIdx.x, THREADS);
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
    NO_UNROLL for (int chunk = first, i = 0; chunk < end; chunk++) {
        copy_async_wait<0>();
        __syncthreads();
        sum_boxes(sums, raw, threadIdx.x, THREADS);
        __syncthreads();
        NO_UNROLL for (int tap = 0; tap < TAPS; tap++, i++) {
            if (tap > 0) {
                copy_async_wait<STAGES - 2>();
                __syncthreads();
            } else if (chunk + 1 < end) {
                load_raw(raw, table, x, s, chunk + 1, threadIdx.x, THREADS);
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
#if MODE == 0
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
#if SPLIT
    const int each = MT * NT * 4 * THREADS;
    float* const part = partial + (u64)item * each + threadIdx.x * 4;
    UNROLL for (int m = 0; m < MT; m++) store_part(part + m * (NT * 4 * THREADS), result[m], THREADS);
    __threadfence();
    __syncthreads();
    __shared__ u32 came;
    if (threadIdx.x == 0) {
        came = atomicAdd(arrivals + item / s.splits, 1u);
        if ((int)came == s.splits - 1) arrivals[item / s.splits] = 0;
    }
    __syncthreads();
    if ((int)came != s.splits - 1) return;
    __threadfence();
    NO_UNROLL for (int z = 0; z < s.splits; z++)
        UNROLL for (int m = 0; m < MT; m++)
            add_part(result[m], part + ((long long)z - item % s.splits) * each + m * (NT * 4 * THREADS),
                     THREADS, z == 0);
#endif
    UNROLL for (int m = 0; m < MT; m++) {
        const int t = wm * MT + m;
        const Patch patch = patch_of(s, tile * PATCHES + t / 4);
        UNROLL for (int half = 0; half < 2; half++)
            store_row(out, s, patch, t % 4 * 2 + half, lane / 4, slice_of(s, item) * PLANES + wn * NT * 8,
                      result[m], half);
    }
#endif
}
