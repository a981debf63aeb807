// Contrast cells: digits 28x28 (or U0) -> UG, the on-centre and the off-centre plane side by side.
//
// Ladder of versions (what each added):
//   1  U0 lives in shared memory only: the digit is enlarged there, first down, then across.
//   2  a thread computes STRIP cells of one column: an input row is read once for all of them, and
//      the kernel being its own mirror image, columns left and right are added before they are
//      multiplied: 28 multiplications a cell, 12 loads.
//   3  float32 with a float64 verdict: |y| <= SILENCE counts as 0, and cells that float32 cannot
//      tell (a few in a thousand digits) are summed once more in float64.
#include "platform.cuh"

// WIDTH, BORDER of UG's layout; CELLS a side; SILENCE; STRIP cells of a column a thread, STRIPS of
// them a block. FROM_U0: the input is U0 itself, float32, of any range.
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
#define PITCH (CELLS + TAPS - 1)
#define THREADS ((CELLS * STRIPS + 31) / 32 * 32)
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

// Rows top .. top + SEEN - 1 of U0, with silence around it, PADDING columns on the left.
DEVICE void enlarge(float* u0, float* down, float* ink, const u8* digit, int top) {
    for (int i = threadIdx.x; i < DIGIT * DIGIT / 4; i += THREADS) {
        const u32 four = ((const u32*)digit)[i];
        UNROLL for (int n = 0; n < 4; n++) ink[4 * i + n] = ink_of((u8)(four >> 8 * n));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SEEN * DIGIT; i += THREADS) {
        int row = top + i / DIGIT, column = i % DIGIT;
        float value = 0.0f;
        if (!on_paper(row)) {
            Enlarged e = enlarged(row);
            value = mix(e, ink[e.low * DIGIT + column], ink[e.high * DIGIT + column]);
        }
        down[i] = value;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SEEN * PITCH; i += THREADS) {
        int row = i / PITCH, column = i % PITCH - PADDING;
        float value = 0.0f;
        if (!on_paper(column)) {
            Enlarged e = enlarged(column);
            value = mix(e, down[row * DIGIT + e.low], down[row * DIGIT + e.high]);
        }
        u0[i] = value;
    }
}

DEVICE void read_u0(float* u0, const float* source, int top) {
    for (int i = threadIdx.x; i < SEEN * PITCH; i += THREADS) {
        int row = top + i / PITCH, column = i % PITCH - PADDING;
        bool inside = row >= 0 && row < INPUT && column >= 0 && column < INPUT;
        u0[i] = inside ? source[row * INPUT + column] : 0.0f;
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
DEVICE float error_at(const float* window, const float (&w)[HALF][HALF]) {
    if (!FROM_U0) return ERROR * 2.0f;
    float size = 0.0f;
    for (int i = 0; i < TAPS; i++)
        UNROLL for (int j = 0; j < TAPS; j++) size += fabsf(window[i * PITCH + j]);
    return ERROR * size;  // no |a| is above 1
}

// UG: a pair at a time.
#if MAP == 0
typedef float2 pair_t;
DEVICE pair_t pair_of(float on, float off) { return make_float2(on, off); }
#elif MAP == 1
typedef u32 pair_t;
DEVICE pair_t pair_of(float on, float off) { return half2_of(on, off); }
#else
typedef u32 pair_t;
DEVICE pair_t pair_of(float on, float off) { return bf16_of(on) | (u32)bf16_of(off) << 16; }
#endif

// weights: the upper left quarter of the kernel, the middle row and column included.
#if FROM_U0
KERNEL(THREADS) contrast(const float* source, map_t* ug, const double* weights) {
#else
KERNEL(THREADS) contrast(const u8* source, map_t* ug, const double* weights) {
#endif
    DYNAMIC_SHARED(memory);
    float* u0 = (float*)memory;
    float w[HALF][HALF];
    UNROLL for (int i = 0; i < HALF; i++)
        UNROLL for (int j = 0; j < HALF; j++) w[i][j] = (float)weights[i * HALF + j];
    wait_for_previous();
    start_next();
    const int first = blockIdx.x * ROWS, top = first - PADDING;
#if FROM_U0
    read_u0(u0, source + (u64)blockIdx.z * INPUT * INPUT, top);
#else
    float* down = u0 + SEEN * PITCH;
    enlarge(u0, down, down + SEEN * DIGIT, source + (u64)blockIdx.z * DIGIT * DIGIT, top);
#endif
    __syncthreads();
    const int column = threadIdx.x % CELLS, strip = threadIdx.x / CELLS * STRIP;
    if (threadIdx.x >= CELLS * STRIPS) return;

    const float* window = u0 + strip * PITCH + column;
    float y[STRIP];
    UNROLL for (int n = 0; n < STRIP; n++) y[n] = 0.0f;
    UNROLL for (int i = 0; i < STRIP + TAPS - 1; i++) {
        float seen[HALF];
        UNROLL for (int j = 0; j < HALF - 1; j++)
            seen[j] = window[i * PITCH + j] + window[i * PITCH + TAPS - 1 - j];
        seen[HALF - 1] = window[i * PITCH + HALF - 1];
        UNROLL for (int n = 0; n < STRIP; n++)
            if (i - n >= 0 && i - n < TAPS)
                UNROLL for (int j = 0; j < HALF; j++)
                    y[n] = fmaf(w[i - n < HALF ? i - n : TAPS - 1 - i + n][j], seen[j], y[n]);
    }
    pair_t* cell = (pair_t*)ug + ((u64)blockIdx.z * WIDTH + first + strip + BORDER) * WIDTH;
    UNROLL for (int n = 0; n < STRIP; n++) {
        if (first + strip + n >= CELLS) break;
        float size = fabsf(y[n]);
        bool silent = size <= (float)SILENCE;
        if (fabsf(size - (float)SILENCE) <= error_at(window + n * PITCH, w))
            silent = fabs(exactly(window + n * PITCH, weights)) <= SILENCE;
        float on = !silent && y[n] > 0.0f ? y[n] : 0.0f, off = !silent && y[n] < 0.0f ? -y[n] : 0.0f;
        cell[n * WIDTH + column + BORDER] = pair_of(on, off);
    }
}
