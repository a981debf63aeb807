// UC4 and the decision: responses of US4 -> scores of the ten labels, label, margin, probability.
//
// One block a digit, one warp a label; the rules are those of neocog/network/decision.py.
// Ladder of versions (what each added):
//   1  strongest: a warp goes over its label's planes and all places, lanes side by side along
//      planes (and places, where a label has few planes), and keeps the largest with its place.
//   2  pairs: only planes that respond at that place are looked at (a silent one can lie on no
//      segment's inside), so the list is short; lanes share out the pairs of the list.
//   3  triples: lanes share out pairs, each goes through the third vectors; float64, as there.
//   4  tables wait in shared memory before US4 is there, and US4 is brought whole, 16 bytes a load,
//      all of a thread's loads in flight together: one way to memory, not three one after another.
//   5  planes that respond to what is no digit are an eleventh label (CLASSES 11).
#include "platform.cuh"

// PLACES cells of a plane, CHANNELS stored, PLANES planes, CLASSES labels (10, or 11 with no digit),
// MOST planes of one label, RULE 0 strongest, 1 pairs, 2 triples, 3 linear; LIMIT planes of a label
// that enter into pairs. HELD: whether US4 lies in shared memory; HELD_APART: whether `apart` does.
#define LABELS 10
#define COLUMNS 16
#define THREADS (CLASSES * 32)
#define ALL 0xffffffffu
#define SAME 1e-6f
#define FLAT 1e-12
#define INTERPOLATED (RULE == 1 || RULE == 2)

// Lanes along planes; the other lanes take other places.
#define ACROSS (MOST > 16 ? 32 : MOST > 8 ? 16 : MOST > 4 ? 8 : 4)

DEVICE float largest(float x) {
    UNROLL for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, step));
    return x;
}

struct Strongest {
    float response;
    int place;  // the first, if several are equal
};

DEVICE Strongest stronger(Strongest a, Strongest b) {
    if (!INTERPOLATED) return {fmaxf(a.response, b.response), 0};  // nobody asks where
    bool second = b.response > a.response || (b.response == a.response && b.place < a.place);
    return second ? b : a;
}

// The strongest plane of a label anywhere.
DEVICE Strongest strongest_of(const float* us4, const int* planes, int count) {
    const int lane = threadIdx.x % 32, stride = 32 / ACROSS;
    Strongest best = {0.0f, 0};
    for (int m = lane % ACROSS; m < count; m += ACROSS) {
        const float* plane = us4 + planes[m];
        UNROLL for (int step = 0; step < (PLACES + stride - 1) / stride; step++) {
            int place = step * stride + lane / ACROSS;
            if (place < PLACES) best = stronger(best, Strongest{plane[place * CHANNELS], place});
        }
    }
    UNROLL for (int step = 16; step; step /= 2) {
        Strongest other;
        other.response = __shfl_xor_sync(ALL, best.response, step);
        other.place = __shfl_xor_sync(ALL, best.place, step);
        best = stronger(best, other);
    }
    return best;
}

// Planes that respond, as cosines, with their number among the planes of the label.
struct List {
    float* cosine;
    int* number;
    int length;
};

DEVICE List responding(List list, const float* at, const int* planes, int count, float theta) {
    const int lane = threadIdx.x % 32;
    list.length = 0;
    for (int first = 0; first < count; first += 32) {
        int m = first + lane;
        float response = m < count ? at[planes[m]] : 0.0f;
        u32 heard = __ballot_sync(ALL, response > 0.0f);
        int slot = list.length + __popc(heard & ((1u << lane) - 1u));
        if (response > 0.0f) {
            list.cosine[slot] = response * (1.0f - theta) + theta;
            list.number[slot] = m;
        }
        list.length += __popc(heard);
    }
    __syncwarp();
    return list;
}

// The LIMIT largest cosines of a longer list; the lower number first where two are equal.
DEVICE List shortened(const List& list, List to) {
    for (int i = threadIdx.x % 32; i < list.length; i += 32) {
        float own = list.cosine[i];
        int rank = 0;
        for (int j = 0; j < list.length; j++)
            rank += list.cosine[j] > own || (list.cosine[j] == own && j < i);
        if (rank < LIMIT) {
            to.cosine[rank] = own;
            to.number[rank] = list.number[i];
        }
    }
    __syncwarp();
    to.length = LIMIT;
    return to;
}

// Pair `index` of the list's pairs (first < second), counted along the first.
DEVICE void pair_at(int index, int& first, int& second) {
    second = (int)((1.0f + sqrt_of(8.0f * index + 1.0f)) * 0.5f);
    if (second * (second - 1) / 2 > index) second--;
    if (second * (second + 1) / 2 <= index) second++;
    first = index - second * (second - 1) / 2;
}

// Largest squared cosine to a vector or to the inside of a segment, of the pairs of this lane.
DEVICE float best_on_segments(const List& list, const float* apart) {
    float best = 0.0f;
    for (int i = threadIdx.x % 32; i < list.length; i += 32)
        best = fmaxf(best, list.cosine[i] * list.cosine[i]);
    const int pairs = list.length * (list.length - 1) / 2;
    _Pragma("unroll 4") for (int index = threadIdx.x % 32; index < pairs; index += 32) {
        int i, j;
        pair_at(index, i, j);
        float a = list.cosine[i], b = list.cosine[j];
        float h = apart[list.number[i] * MOST + list.number[j]], difference = a - b;
        bool inside = difference + h * b > 0.0f && h * a - difference > 0.0f && h > SAME;
        float square = __fdividef(difference * difference + 2.0f * h * a * b, h * (2.0f - h));
        if (inside) best = fmaxf(best, square);
    }
    return best;
}

// Largest squared cosine to the inside of a triangle, of the triangles of this lane.
DEVICE double best_on_triangles(const List& list, const double* gram) {
    double best = 0.0;
    const int pairs = list.length * (list.length - 1) / 2;
    for (int index = threadIdx.x % 32; index < pairs; index += 32) {
        int i, j;
        pair_at(index, i, j);
        const double* row_i = gram + list.number[i] * MOST;
        const double* row_j = gram + list.number[j] * MOST;
        const double a = list.cosine[i], b = list.cosine[j], ab = row_i[list.number[j]];
        for (int k = j + 1; k < list.length; k++) {
            const double c = list.cosine[k], ca = row_i[list.number[k]], bc = row_j[list.number[k]];
            double det = 1.0 + 2.0 * ab * bc * ca - ab * ab - bc * bc - ca * ca;
            double p = a * (1.0 - bc * bc) + b * (bc * ca - ab) + c * (ab * bc - ca);
            double q = a * (bc * ca - ab) + b * (1.0 - ca * ca) + c * (ca * ab - bc);
            double r = a * (ab * bc - ca) + b * (ca * ab - bc) + c * (1.0 - ab * ab);
            if (p > 0.0 && q > 0.0 && r > 0.0 && det > FLAT) {
                double square = (p * a + q * b + r * c) / det;
                best = square > best ? square : best;
            }
        }
    }
    return best;
}

DEVICE float interpolated(List list, List few, const float* at, const int* planes, int count,
                          float theta, const float* apart, const double* gram) {
    list = responding(list, at, planes, count, theta);
    if (list.length > LIMIT) list = shortened(list, few);
    float best = sqrtf(largest(best_on_segments(list, apart)));
    if (RULE == 2) best = fmaxf(best, largest((float)sqrt(best_on_triangles(list, gram))));
    return __fdividef(fmaxf(best - theta, 0.0f), 1.0f - theta);
}

DEVICE float signed_sum(const float* us4, const int* planes, const float* gains, int count) {
    float sum = 0.0f;
    for (int m = threadIdx.x % 32; m < count; m += 32)
        sum += us4[PLACES / 2 * CHANNELS + planes[m]] * gains[planes[m]];
    UNROLL for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    return fmaxf(sum, 0.0f);
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

// Copy words (floats, ints) to shared memory.
DEVICE void hold(void* to, const void* from, int count) {
    UNROLL_BY(2) for (int i = threadIdx.x; i < count; i += THREADS) ((u32*)to)[i] = ((const u32*)from)[i];
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

// starts: where the planes of each label begin in `planes`, and where the last ends. gains, apart
// and gram are read by the rules that want them: apart (CLASSES, MOST, MOST) is 1 - cosine of two
// reference vectors of a label, gram the cosine in float64.
KERNEL(THREADS) decide(const float* us4, float* answers, const int* starts, const int* planes,
                       const float* gains, const float* apart, const double* gram, float theta,
                       float temperature) {
    DYNAMIC_SHARED(memory);
    float* score = (float*)memory;  // 16
    float* held = score + 16;
    int* held_planes = (int*)(held + (HELD ? PLACES * CHANNELS : 0));
    float* held_apart = (float*)(held_planes + (PLANES + 3) / 4 * 4);
    float* lists = held_apart + (HELD_APART ? (CLASSES * MOST * MOST + 3) / 4 * 4 : 0);
    start_next();
    const int label = threadIdx.x / 32;
    const int first = starts[label], count = starts[label + 1] - first;
    hold(held_planes, planes, PLANES);
    if (HELD_APART) hold(held_apart, apart, CLASSES * MOST * MOST);
    wait_for_previous();
    us4 += (u64)blockIdx.x * PLACES * CHANNELS;
    if (HELD) hold_responses(held, us4);
    __syncthreads();
    const float* responses = HELD ? held : us4;
    const int* own_planes = held_planes + first;
    float own;
    if (RULE == 3) {
        own = signed_sum(responses, own_planes, gains, count);
    } else {
        Strongest best = strongest_of(responses, own_planes, count);
        own = best.response;
        if (INTERPOLATED) {
            int* numbers = (int*)(lists + CLASSES * (MOST + LIMIT));
            const int at = label * (MOST + LIMIT);
            List list = {lists + at, numbers + at, 0};
            List few = {lists + at + MOST, numbers + at + MOST, 0};
            own = interpolated(list, few, responses + best.place * CHANNELS, own_planes, count,
                               theta, (HELD_APART ? held_apart : apart) + label * MOST * MOST,
                               gram + label * MOST * MOST);
        }
    }
    if (threadIdx.x % 32 == 0) score[label] = own;
    __syncthreads();
    if (threadIdx.x < 32) answer(answers + (u64)blockIdx.x * COLUMNS, score, temperature);
}
