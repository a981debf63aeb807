// Contrast cells: digits 28x28 (or U0) -> UG, the on-centre and the off-centre plane side by side.
//
// Ladder of versions (what each added):
//   1  U0 lives in shared memory only: the digit is enlarged there.
//   2  a thread computes STRIP cells of COLUMNS columns: an input row is read once for all of them,
//      and the kernel being its own mirror image, columns left and right are added before they are
//      multiplied: 28 multiplications a cell.
//   3  float32 with a float64 verdict: |y| <= SILENCE counts as 0. A loop that most warps never enter
//      takes the cells that the bound of any digit leaves open. Those that the bound of their own
//      window leaves open as well are summed in float64: 7 of 10^6 cells, in 3 of 100 digits
//      (experiments/gpu/silence.py of commit bfe9938, --count 1000).
//   4  a thread enlarges one column: where that lies between the digit's columns is worked out once,
//      two rows of U0 come from the same four pixels, and a pixel is read once for both.
#include "platform.cuh"

// WIDTH, BORDER of UG's layout; CELLS a side; SILENCE; ROUNDED weights; STRIP cells each of COLUMNS
// (1 or 2) columns a thread, STRIPS of them a block. FROM_U0: the input is U0 itself, float32, of any
// range.
#ifndef FROM_U0
#define FROM_U0 0
#endif
#define DIGIT 28
#define INPUT 65
#define MARGIN 4
#define TAPS 7
#define HALF 4  // taps of half a kernel, the middle one included
#define PADDING 6
#define ROWS (STRIP * STRIPS)
#define SEEN (ROWS + TAPS - 1)
#define SEEN_COLUMNS (CELLS + TAPS - 1)
#define PITCH ((SEEN_COLUMNS + 2) / 2 * 2)
#define ACROSS ((CELLS + COLUMNS - 1) / COLUMNS)  // threads side by side
#define THREADS ((ACROSS * STRIPS + 31) / 32 * 32)
// Threads that share a column of U0, and the pairs of its rows that each enlarges.
#define SHARERS (THREADS / SEEN_COLUMNS > 1 ? THREADS / SEEN_COLUMNS : 1)
#define PAIRS (SEEN / 2 + 1)
#define PAIRS_EACH ((PAIRS + SHARERS - 1) / SHARERS)
// Rows of the digit that a block sees.
#define INK_ROWS (PAIRS + 1 < DIGIT ? PAIRS + 1 : DIGIT)
// float32 errs by at most (taps + 2) 2^-24 sum |a| |u|; sum |a| is 2
#define ERROR (52.0f * 5.9604645e-8f)

struct Enlarged {
    int low, high;    // pixels of the digit
    float part[2];    // how much of each
};

// Row (or column) i of U0: bilinear, pixel centres at half-integers, the border repeated.
DEVICE Enlarged enlarged(int i) {
    int twice = i - MARGIN - 1;  // 2 (source) - 1/2, rounded down
    int low = twice >> 1;
    Enlarged r;
    r.part[0] = twice & 1 ? 0.25f : 0.75f;
    r.part[1] = 1.0f - r.part[0];
    r.low = low < 0 ? 0 : low;
    r.high = low + 1 > DIGIT - 1 ? DIGIT - 1 : low + 1;
    return r;
}

// pixel / 255, rounded to nearest for each of the 256 values: quotient, remainder, correction.
DEVICE float ink_of(u8 pixel) {
    const float inverse = 1.0f / 255.0f;
    float quotient = pixel * inverse;
    return fmaf(fmaf(-255.0f, quotient, (float)pixel), inverse, quotient);
}

DEVICE bool on_paper(int i) { return i < MARGIN || i >= MARGIN + 2 * DIGIT; }

// One product rounded, then one multiply-add: the order in which a matrix product adds them.
DEVICE float mix(const Enlarged& e, float first, float second) {
    return fmaf(e.part[1], second, e.part[0] * first);
}

// Row of the digit among those that the block sees; rows that no thread needs are the last one.
DEVICE int within(int row, int first) {
    return min(max(0, min(row, DIGIT - 1)) - first, INK_ROWS - 1);
}

// Rows top .. top + SEEN - 1 of U0, with silence around it, PADDING columns on the left. Rows
// 2 s + MARGIN + 1 and the next lie between rows s and s + 1 of the digit.
DEVICE void enlarge(float* u0, float* ink, const u8* digit, int top) {
    const int start = (top - MARGIN - 1) >> 1;
    int first = start < 0 ? 0 : start;
    if (first > DIGIT - INK_ROWS) first = DIGIT - INK_ROWS;
    for (int i = threadIdx.x; i < INK_ROWS * DIGIT / 4; i += THREADS) {
        const u32 four = ((const u32*)(digit + first * DIGIT))[i];
        ((float4*)ink)[i] = make_float4(ink_of((u8)four), ink_of((u8)(four >> 8)),
                                        ink_of((u8)(four >> 16)), ink_of((u8)(four >> 24)));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SEEN_COLUMNS * SHARERS; i += THREADS) {
        const int at = i % SEEN_COLUMNS, column = at - PADDING, share = i / SEEN_COLUMNS * PAIRS_EACH;
        const bool silent = on_paper(column);
        const Enlarged e = enlarged(column);
        const int left = silent ? 0 : e.low, right = silent ? 0 : e.high;
        float low[2], high[2];  // left and right pixel of the rows above and below
        const float* row = ink + within(start + share, first) * DIGIT;
        low[0] = row[left], low[1] = row[right];
        UNROLL_BY(2) for (int n = 0; n < PAIRS_EACH; n++) {
            const int s = start + share + n;
            row = ink + within(s + 1, first) * DIGIT;
            high[0] = row[left], high[1] = row[right];
            UNROLL for (int odd = 0; odd < 2; odd++) {
                const int y = 2 * s + MARGIN + 1 + odd;
                Enlarged between;
                between.part[0] = odd ? 0.25f : 0.75f;
                between.part[1] = 1.0f - between.part[0];
                const float value =
                    mix(e, mix(between, low[0], high[0]), mix(between, low[1], high[1]));
                if (y >= top && y < top + SEEN)
                    u0[(y - top) * PITCH + at] = silent || on_paper(y) ? 0.0f : value;
            }
            low[0] = high[0], low[1] = high[1];
        }
    }
}

DEVICE void read_u0(float* u0, const float* source, int top) {
    UNROLL_BY(4) for (int i = threadIdx.x; i < SEEN * SEEN_COLUMNS; i += THREADS) {
        const int line = i / SEEN_COLUMNS, at = i % SEEN_COLUMNS;
        const int row = top + line, column = at - PADDING;
        const bool inside = row >= 0 && row < INPUT && column >= 0 && column < INPUT;
        u0[line * PITCH + at] = inside ? source[row * INPUT + column] : 0.0f;
    }
}

DEVICE int quarter(int tap) { return tap < HALF ? tap : TAPS - 1 - tap; }

// The same sum in float64.
DEVICE double exactly(const float* window, const double* weights) {
    double y = 0.0;
    NO_UNROLL for (int i = 0; i < TAPS; i++)
        NO_UNROLL for (int j = 0; j < TAPS; j++)
            y += weights[quarter(i) * HALF + quarter(j)] * (double)window[i * PITCH + j];
    return y;
}

// What float32 may be wrong by at a window.
DEVICE float error_at(const float* window) {
    float size = 0.0f;
    UNROLL for (int i = 0; i < TAPS; i++)
        UNROLL for (int j = 0; j < TAPS; j++) size += fabsf(window[i * PITCH + j]);
    return ERROR * size;  // no |a| is above 1
}

// UG: a pair at a time.
#if MAP == 0
typedef float2 pair_t;
DEVICE pair_t pair_of(float on, float off) { return make_float2(on, off); }
#else
typedef u32 pair_t;
DEVICE pair_t pair_of(float on, float off) { return half2_of(on, off); }
#endif

// The columns that a thread sees of one row.
DEVICE void read_row(float (&u)[COLUMNS + TAPS - 1], const float* from) {
#if COLUMNS == 2  // pairs of columns begin at even places
    UNROLL for (int j = 0; j < COLUMNS + TAPS - 1; j += 2) {
        const float2 two = *(const float2*)(from + j);
        u[j] = two.x, u[j + 1] = two.y;
    }
#else
    UNROLL for (int j = 0; j < COLUMNS + TAPS - 1; j++) u[j] = from[j];
#endif
}

DEVICE void respond(pair_t* cell, float y) { *cell = pair_of(fmaxf(y, 0.0f), fmaxf(-y, 0.0f)); }

// weights: the upper left quarter of the kernel, the middle row and column included; ROUNDED: the
// same in float32.
#if FROM_U0
typedef float source_t;
#else
typedef u8 source_t;
#endif
KERNEL(THREADS) contrast(const source_t* source, map_t* ug, const double* weights) {
    DYNAMIC_SHARED(memory);
    float* u0 = (float*)memory;
    start_next();
    const float w[HALF][HALF] = ROUNDED;
    wait_for_previous();
    const int first = blockIdx.x * ROWS, top = first - PADDING;
#if FROM_U0
    read_u0(u0, source + (u64)blockIdx.z * INPUT * INPUT, top);
#else
    enlarge(u0, u0 + SEEN * PITCH, source + (u64)blockIdx.z * DIGIT * DIGIT, top);
#endif
    __syncthreads();
    const int column = threadIdx.x % ACROSS * COLUMNS, strip = threadIdx.x / ACROSS * STRIP;
    if (threadIdx.x >= ACROSS * STRIPS) return;

    const float* window = u0 + strip * PITCH + column;
    float y[COLUMNS][STRIP];
    UNROLL for (int c = 0; c < COLUMNS; c++)
        UNROLL for (int n = 0; n < STRIP; n++) y[c][n] = 0.0f;
    UNROLL for (int i = 0; i < STRIP + TAPS - 1; i++) {
        float u[COLUMNS + TAPS - 1];
        read_row(u, window + i * PITCH);
        UNROLL for (int c = 0; c < COLUMNS; c++) {
            float seen[HALF];
            UNROLL for (int j = 0; j < HALF - 1; j++) seen[j] = u[c + j] + u[c + TAPS - 1 - j];
            seen[HALF - 1] = u[c + HALF - 1];
            UNROLL for (int n = 0; n < STRIP; n++)
                if (i - n >= 0 && i - n < TAPS)
                    UNROLL for (int j = 0; j < HALF; j++)
                        y[c][n] = fmaf(w[i - n < HALF ? i - n : TAPS - 1 - i + n][j], seen[j], y[c][n]);
        }
    }

    pair_t* cell = (pair_t*)ug + ((u64)blockIdx.z * WIDTH + first + strip + BORDER) * WIDTH +
                   column + BORDER;
    u32 doubtful = 0;  // a bit for each cell
    UNROLL for (int n = 0; n < STRIP; n++)
        UNROLL for (int c = 0; c < COLUMNS; c++) {
            if (first + strip + n >= CELLS || column + c >= CELLS) continue;
            const float size = fabsf(y[c][n]);
            respond(cell + n * WIDTH + c, size <= (float)SILENCE ? 0.0f : y[c][n]);
            const float error = FROM_U0 ? error_at(window + n * PITCH + c) : ERROR * 2.0f;
            if (fabsf(size - (float)SILENCE) <= error)
                doubtful |= 1u << (c * STRIP + n);
        }
    while (doubtful) {
        const int bit = __ffs(doubtful) - 1, n = bit % STRIP, c = bit / STRIP;
        const float* at = window + n * PITCH + c;
        float heard = 0.0f;
        UNROLL for (int i = 0; i < STRIP * COLUMNS; i++)
            if (i == bit) heard = y[i / STRIP][i % STRIP];
        doubtful &= doubtful - 1;
        if (fabsf(fabsf(heard) - (float)SILENCE) > error_at(at)) continue;
        const bool silent = fabs(exactly(at, weights)) <= SILENCE;
        respond(cell + n * WIDTH + c, silent ? 0.0f : heard);
    }
}
