// A picture for the finder, and the marks that it tells of: sizes of the picture, contrast against
// the surroundings, and behind the network peaks, their order, and the best of those that overlap.
#include "levels.cuh"

struct Scale {
    float x, y;             // pixels of the picture to one of this size
    float digit, sign;      // shortest longer side of a mark that is told at this size
    float largest;
    int spare[3];
};
struct Mark {
    float left, top, wide, high, score;
    int kind;   // 0 .. 9 digits, 10 + k signs
    int order;  // of marks that score alike
    int alive;
    float guesses[10];  // log probabilities of the digits
};

// SPAN: SPAN * SPAN is the window's side; FLOOR; UNIT, CELL and SURE of the network's answers; PLANES of
// them, stored as CO channels; MOST marks that are looked at.
#ifndef SPAN
#define SPAN 7
#define FLOOR 12.0f
#define UNIT 16.0f
#define SURE 12.0f
#define CELL 4
#define PLANES 30
#define CO 32
#define MOST 800
#endif
#define WINDOW (SPAN * SPAN)
#define REACH (WINDOW / 2)
#define STRIP 16  // rows of a block of `normalise`
#define THREADS 256

// -- sizes of the picture ----------------------------------------------------------------------------
// Pixels of one output pixel along one axis, and how much of each (OpenCV's INTER_AREA).
struct Span {
    int first, last;
    float head, body, tail;
};
DEVICE Span span_of(int i, int from, int to) {
    const double scale = 1.0 / ((double)to / from), low = i * scale, high = low + scale;
    const double width = fmin(scale, from - low);
    int first = (int)ceil(low), last = min((int)floor(high), from - 1);
    first = min(first, last);
    Span s = {first, last, 0.0f, (float)(1.0 / width), 0.0f};
    if (first - low > 1e-3) s.head = (float)((first - low) / width);
    if (high - last > 1e-3) s.tail = (float)(fmin(fmin(high - last, 1.0), width) / width);
    return s;
}
DEVICE float row_sum(const u8* row, const Span& s) {
    float sum = s.head > 0.0f ? row[s.first - 1] * s.head : 0.0f;
    for (int x = s.first; x < s.last; x++) sum += row[x] * s.body;
    return s.tail > 0.0f ? sum + row[s.last] * s.tail : sum;
}

// Size k from the one before, which may be itself.
KERNEL(THREADS) reduce(const Level* levels, int k, u8* greys) {
    start_next();
    const Level from = levels[k - 1], to = levels[k];
    wait_for_previous();
    const u8* source = greys + from.byte;
    u8* target = greys + to.byte;
    const bool halved = from.high == 2 * to.high && from.wide == 2 * to.wide;
    const int pixels = from.byte == to.byte ? 0 : to.high * to.wide;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < pixels; i += gridDim.x * THREADS) {
        const int y = i / to.wide, x = i % to.wide;
        if (halved) {
            const u8* four = source + (u64)2 * y * from.wide + 2 * x;
            target[i] = (u8)((four[0] + four[1] + four[from.wide] + four[from.wide + 1] + 2) >> 2);
            continue;
        }
        const Span down = span_of(y, from.high, to.high), across = span_of(x, from.wide, to.wide);
        const u8* row = source + (u64)down.first * from.wide;
        float sum = 0.0f;
        if (down.head > 0.0f) sum = row_sum(row - from.wide, across) * down.head;
        for (int j = down.first; j < down.last; j++, row += from.wide) sum += row_sum(row, across) * down.body;
        if (down.tail > 0.0f) sum += row_sum(row, across) * down.tail;
        target[i] = (u8)max(0, min(255, __float2int_rn(sum)));
    }
}

// -- (g - mean) / sqrt(variance + FLOOR^2) over WINDOW x WINDOW pixels -------------------------------------
// Index mirrored at the borders, which are not repeated.
DEVICE int mirrored(int i, int size) {
    if (size == 1) return 0;
    while (i < 0 || i >= size) i = i < 0 ? -i : 2 * size - 2 - i;
    return i;
}

// A block: STRIP rows of THREADS - WINDOW + 1 columns; sums are whole numbers and exact.
KERNEL(THREADS) normalise(const Level* levels, int sizes, const u8* greys, u16* x, u32* count) {
    __shared__ u32 sums[2][THREADS];   // of a column: values, squares
    __shared__ u32 spans[2][THREADS];  // of SPAN columns
    start_next();
    const Tile tile = tile_of(levels, sizes, blockIdx.x, 1, STRIP, THREADS - WINDOW + 1);
    if (tile.level < 0) return;
    const Level level = levels[tile.level];
    wait_for_previous();
    if (blockIdx.x == 0 && threadIdx.x == 0) *count = 0;
    const int me = threadIdx.x, column = tile.left + me;
    const u8* grey = greys + level.byte;
    const u8* seen = grey + mirrored(column - REACH, level.wide);
    u32 sum = 0, square = 0;
    for (int dy = -REACH; dy <= REACH; dy++) {
        const u32 g = seen[(u64)mirrored(tile.top + dy, level.high) * level.wide];
        sum += g, square += g * g;
    }
    for (int y = tile.top; y < min(tile.top + STRIP, level.rows); y++) {
        if (y > tile.top) {
            const u32 in = seen[(u64)mirrored(y + REACH, level.high) * level.wide];
            const u32 out = seen[(u64)mirrored(y - 1 - REACH, level.high) * level.wide];
            sum += in - out, square += in * in - out * out;
        }
        sums[0][me] = sum, sums[1][me] = square;
        __syncthreads();
        if (me <= THREADS - SPAN) {
            u32 a = 0, b = 0;
            UNROLL for (int i = 0; i < SPAN; i++) a += sums[0][me + i], b += sums[1][me + i];
            spans[0][me] = a, spans[1][me] = b;
        }
        __syncthreads();
        if (me > THREADS - WINDOW || column >= level.columns) continue;
        float value = 0.0f;
        if (y < level.high && column < level.wide) {
            u32 a = 0, b = 0;
            UNROLL for (int i = 0; i < SPAN; i++) a += spans[0][me + SPAN * i], b += spans[1][me + SPAN * i];
            const long long n = WINDOW * WINDOW, g = grey[(u64)y * level.wide + column];
            const long long variance = n * b - (long long)a * a;  // n^2 times it
            const float root = rsqrtf((float)variance + FLOOR * FLOOR * (float)n * (float)n);
            value = (float)(g * n - a) * root;
        }
        x[(u64)level.cell + (u64)y * level.columns + column] = half_of(value);
    }
}

// -- marks -----------------------------------------------------------------------------------------------
DEVICE float best_of(const float* maps, const Tile& tile, int y, int x) {
    const float* at = maps + (u64)(tile.first + y * tile.wide + x) * CO;
    return fmaxf(at[0], at[1]);
}

DEVICE int strongest(const float* at, int from, int to) {
    int best = from;
    for (int i = from + 1; i < to; i++)
        if (at[i] > at[best]) best = i;
    return best - from;
}

DEVICE float clipped_exp(float value) { return expf(fminf(fmaxf(value, -4.0f), 4.0f)); }

// A place that is above its neighbours is a mark if it is above `least` as a digit, and one if it is so
// as a sign; in no order.
KERNEL(64) peaks(const Level* levels, int sizes, const Scale* scales, const float* maps, float least,
                 Mark* marks, u32* count) {
    start_next();
    const Tile tile = tile_of(levels, sizes, blockIdx.x, CELL, 4, 16);
    if (tile.level < 0) return;
    wait_for_previous();
    const int y = tile.top + threadIdx.x / 16, x = tile.left + threadIdx.x % 16;
    if (y >= tile.high || x >= tile.wide) return;
    const float best = best_of(maps, tile, y, x);
    if (!(best > least)) return;
    for (int j = max(y - 1, 0); j <= min(y + 1, tile.high - 1); j++)
        for (int i = max(x - 1, 0); i <= min(x + 1, tile.wide - 1); i++)
            if (best_of(maps, tile, j, i) > best) return;
    const int place = tile.first + y * tile.wide + x;
    const float* at = maps + (u64)place * CO;
    const Scale scale = scales[tile.level];
    const float wide = UNIT * clipped_exp(at[2]), high = UNIT * clipped_exp(at[3]);
    const float side = fmaxf(wide, high);
    Mark mark;
    mark.left = ((x + 0.5f + at[4]) * CELL - 0.5f * wide) * scale.x;
    mark.top = ((y + 0.5f + at[5]) * CELL - 0.5f * high) * scale.y;
    mark.wide = wide * scale.x, mark.high = high * scale.y, mark.alive = 1;
    const float top = at[6 + strongest(at, 6, 16)];
    float sum = 0.0f;
    for (int k = 0; k < 10; k++) sum += expf(at[6 + k] - top);
    for (int k = 0; k < 10; k++) mark.guesses[k] = at[6 + k] - top - logf(sum);
    for (int sign = 0; sign < 2; sign++) {
        if (!(at[sign] > least) || side < (sign ? scale.sign : scale.digit) || side > scale.largest)
            continue;
        mark.score = 1.0f / (1.0f + expf(-fminf(fmaxf(at[sign], -SURE), SURE)));
        mark.kind = sign ? 10 + strongest(at, 16, PLANES) : strongest(at, 6, 16);
        mark.order = 2 * place + sign;
        marks[atomicAdd(count, 1u)] = mark;
    }
}

// Put the best MOST marks in their order: by score, then by place and kind. best[MOST] tells how many came.
KERNEL(THREADS) rank(const Mark* marks, const u32* count, Mark* best) {
    __shared__ float scores[THREADS];
    __shared__ int orders[THREADS];
    start_next();
    wait_for_previous();
    const int n = (int)*count, me = blockIdx.x * THREADS + threadIdx.x;
    if (me == 0) best[MOST].kind = n;
    if ((int)blockIdx.x * THREADS >= n) return;
    const Mark mark = marks[me < n ? me : 0];
    int before = 0;
    for (int start = 0; start < n; start += THREADS) {
        const int other = start + threadIdx.x;
        scores[threadIdx.x] = other < n ? marks[other].score : -1.0f;
        orders[threadIdx.x] = other < n ? marks[other].order : 0;
        __syncthreads();
        for (int i = 0; i < THREADS; i++)
            before += scores[i] > mark.score || (scores[i] == mark.score && orders[i] < mark.order);
        __syncthreads();
    }
    if (me < n && before < MOST) best[before] = mark;
}

// Of marks that overlap the best stays alive: one block, marks in their order.
KERNEL(THREADS) suppress(Mark* best, float overlap, float inside) {
    __shared__ float4 corners[MOST];  // left, top, right, bottom
    __shared__ float areas[MOST];
    __shared__ u8 alive[MOST];
    wait_for_previous();
    const int n = min(best[MOST].kind, MOST);
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const Mark m = best[i];
        corners[i] = make_float4(m.left, m.top, m.left + m.wide, m.top + m.high);
        areas[i] = m.wide * m.high, alive[i] = 1;
    }
    for (int i = 0; i < n; i++) {
        __syncthreads();
        if (!alive[i]) continue;
        const float4 a = corners[i];
        const float area = areas[i];
        for (int j = threadIdx.x; j < n; j += THREADS) {
            if (j <= i) continue;
            const float4 b = corners[j];
            const float wide = fmaxf(fminf(a.z, b.z) - fmaxf(a.x, b.x), 0.0f);
            const float common = wide * fmaxf(fminf(a.w, b.w) - fmaxf(a.y, b.y), 0.0f);
            if (common > overlap * (areas[j] + area - common) || common > inside * fminf(areas[j], area))
                alive[j] = 0;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS) best[i].alive = alive[i];
}
