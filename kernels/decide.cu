// UC4 and the decision: responses of US4 -> scores of the ten labels, label, margin, probability.
//
// One block a digit, one warp a label, as neocog/network/decision.py.
// Ladder of versions (what each added):
//   1  a warp goes over its label's planes and all places, lanes side by side along planes (and
//      places, where a label has few planes), and keeps the largest response.
//   2  tables wait in shared memory before US4 is there, and US4 is brought whole, 16 bytes a load,
//      all of a thread's loads in flight together: one way to memory, not three one after another.
//   3  planes that respond to what is no digit are an eleventh label (CLASSES 11).
#include "platform.cuh"

// PLACES cells of a plane, CHANNELS stored, PLANES planes, CLASSES labels (10, or 11 with no digit),
// MOST planes of one label. HELD: whether US4 lies in shared memory.
#define LABELS 10
#define COLUMNS 16
#define THREADS (CLASSES * 32)
#define ALL 0xffffffffu

// Lanes along planes; the other lanes take other places.
#define ACROSS (MOST > 16 ? 32 : MOST > 8 ? 16 : MOST > 4 ? 8 : 4)

DEVICE float largest(float x) {
    UNROLL for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, step));
    return x;
}

// The strongest plane of a label anywhere.
DEVICE float strongest_of(const float* us4, const int* planes, int count) {
    const int lane = threadIdx.x % 32, stride = 32 / ACROSS;
    float best = 0.0f;
    for (int m = lane % ACROSS; m < count; m += ACROSS) {
        const float* plane = us4 + planes[m];
        UNROLL for (int step = 0; step < (PLACES + stride - 1) / stride; step++) {
            int place = step * stride + lane / ACROSS;
            if (place < PLACES) best = fmaxf(best, plane[place * CHANNELS]);
        }
    }
    return largest(best);
}

// One warp: the row of answers from the scores.
DEVICE void answer(float* row, const float* score, float temperature) {
    const int lane = threadIdx.x;
    float best = score[0], second = -1.0f;
    int label = 0;
    UNROLL for (int i = 1; i < CLASSES; i++) {
        bool stronger = score[i] > best;
        second = stronger ? best : fmaxf(second, score[i]);
        label = stronger ? i : label;
        best = stronger ? score[i] : best;
    }
    float part = lane < CLASSES ? expf(__fdividef(score[lane] - best, temperature)) : 0.0f;
    UNROLL for (int step = 16; step; step /= 2) part += __shfl_xor_sync(ALL, part, step);
    const bool known = best > 0.0f && label < LABELS;
    float value = lane < LABELS ? score[lane] : 0.0f;
    if (lane == LABELS) value = known ? (float)label : -1.0f;
    if (lane == LABELS + 1) value = best - second;
    if (lane == LABELS + 2) value = known ? __fdividef(1.0f, part) : 0.0f;
    if (lane < COLUMNS) row[lane] = value;
}

// Copy words to shared memory.
DEVICE void hold(int* to, const int* from, int count) {
    UNROLL_BY(2) for (int i = threadIdx.x; i < count; i += THREADS) to[i] = from[i];
}

// US4 of one digit, to shared memory.
DEVICE void hold_responses(float* to, const float* us4) {
    const int count = PLACES * CHANNELS / 4;
    NO_UNROLL for (int base = threadIdx.x; base < count; base += 4 * THREADS) {
        float4 u[4];
        UNROLL for (int j = 0; j < 4; j++)
            if (base + j * THREADS < count) u[j] = ((const float4*)us4)[base + j * THREADS];
        UNROLL for (int j = 0; j < 4; j++)
            if (base + j * THREADS < count) ((float4*)to)[base + j * THREADS] = u[j];
    }
}

// starts: where the planes of each label begin in `planes`, and where the last ends.
KERNEL(THREADS) decide(const float* us4, float* answers, const int* starts, const int* planes,
                       float temperature) {
    DYNAMIC_SHARED(memory);
    float* score = (float*)memory;  // 16
    float* held = score + 16;
    int* held_planes = (int*)(held + (HELD ? PLACES * CHANNELS : 0));
    start_next();
    const int label = threadIdx.x / 32;
    const int first = starts[label], count = starts[label + 1] - first;
    hold(held_planes, planes, PLANES);
    wait_for_previous();
    us4 += (u64)blockIdx.x * PLACES * CHANNELS;
    if (HELD) hold_responses(held, us4);
    __syncthreads();
    const float own = strongest_of(HELD ? held : us4, held_planes + first, count);
    if (threadIdx.x % 32 == 0) score[label] = own;
    __syncthreads();
    if (threadIdx.x < 32) answer(answers + (u64)blockIdx.x * COLUMNS, score, temperature);
}
