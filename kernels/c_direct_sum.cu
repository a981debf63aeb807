// C-cells: psi(max(0, sum a_C u)) at stride 2, as a direct sum. The kernel a_C is a 2x2 box followed
// by a blur, so the layer is: box sums, strided blur, saturation, with nothing approximated.
//
// Versions (what each costs, in multiplications for one output of an 18x18 kernel):
//   c_direct     shared memory holds 2x2 sums, as float; one thread makes a whole row of one plane
//                (or GROUPS threads a row): a row of sums goes into registers once and serves all
//                outputs of the thread, 17 x 17. Right for blurs of any form; of blurs that are
//                their own mirror image from left to right two taps share a weight.
//   c_separable  blurs of rank 1 (Gaussians): box sums of two rows, down the columns; box sums of two
//                columns, along the rows: 34.
// Beside them stood one thread an output from global memory (324, each with its own load), and rows
// mirrored from top to bottom added first (138): slower where both are measured.
#include "platform.cuh"

// SIZE cells a side of US; CHANNELS stored of US; OUT cells a side of UC; UC_WIDTH, UC_BORDER,
// UC_CHANNELS its layout; TAPS of the kernel a side; FIRST input row (or column) that the first
// tap of the first cell sees; PSI 0 sqrt, 1 ratio. ROWS of outputs a block, GROUPS threads a row
// with NX outputs each, SLAB channels a block.
#ifndef BOX
#define BOX 0
#endif

DEVICE float saturated(float x) {
    x = x > 0.0f ? x : 0.0f;
    return PSI == 0 ? sqrtf(x) : x / (1.0f + x);
}

DEVICE map_t* cell_of(map_t* uc, u32 digit, int row, int column) {
    int width = UC_WIDTH;
    return uc + (((u64)digit * width + row + UC_BORDER) * width + column + UC_BORDER) * UC_CHANNELS;
}

// Four neighbouring channels.
struct alignas(4 * sizeof(map_t)) Stored4 {
    map_t v[4];
};
struct alignas(16) Float4 {
    float v[4];
};

DEVICE Float4 read_4(const map_t* from) {
    Stored4 stored = *(const Stored4*)from;
    Float4 r;
    UNROLL for (int i = 0; i < 4; i++) r.v[i] = of_map(stored.v[i]);
    return r;
}

// -- one row of inputs in registers --------------------------------------------------------------
// Columns and rows of what shared memory holds: the layer itself, or its box sums, where column t is
// the sum of columns t - 1 and t. One thread a row knows at compile time which taps fall outside;
// several threads a row see silent columns there.
#define HELD (SIZE + BOX)
#define WHOLE (GROUPS == 1)
#define HELD_COLUMNS (WHOLE ? HELD : 2 * (NX * GROUPS - 1) + TAPS)
#define LEFT (FIRST + BOX)  // where in HELD the first tap of the first cell lies
#define SPAN (WHOLE ? HELD : 2 * (NX - 1) + TAPS)  // columns that a thread sees
// two rows of cells lie SLAB banks apart, so that the lanes of a warp meet no bank twice
#define PITCH ((HELD_COLUMNS * SLAB - SLAB / 2 + 15) / 16 * 16 + SLAB / 2)
#define SEEN_ROWS (2 * (ROWS - 1) + TAPS)
#define HELD_ROWS (SEEN_ROWS < HELD ? SEEN_ROWS : HELD)
#define THREADS (ROWS * GROUPS * SLAB)

// sum[n] += w seen[2 n + tap], for every cell n of the thread.
DEVICE void multiply_tap(float (&sum)[NX], const float (&seen)[SPAN], float w, int tap) {
    UNROLL for (int n = 0; n < NX; n++) {
        int x = 2 * n + tap + (WHOLE ? LEFT : 0);
        if (x >= 0 && x < SPAN) sum[n] += w * seen[x];
    }
}

// Write the responses of a thread's cells.
DEVICE void respond(map_t* uc, const float (&sum)[NX], int row, int group, int channel) {
    if (row >= OUT || channel >= CHANNELS) return;
    map_t* to = cell_of(uc, blockIdx.z, row, group * NX) + channel;
    UNROLL for (int n = 0; n < NX; n++)
        if (WHOLE || group * NX + n < OUT) to[n * UC_CHANNELS] = to_map(saturated(sum[n]));
}

#ifdef DIRECT
#define ZEROS (HELD_ROWS * PITCH)  // a row of silence
#define WEIGHTS (ZEROS + PITCH)

#define WIDE (16 / (int)sizeof(map_t))  // channels of a 16-byte load
#define IN_FLIGHT 2                        // places that a thread has on their way at a time

struct alignas(16) StoredWide {
    map_t v[WIDE];
};
struct alignas(16) Wide {
    float v[WIDE];
};

// The channels of one place of HELD. Loads are never skipped, so that none waits for another; what
// lies outside is dropped afterwards.
DEVICE Wide held_at(const map_t* digit, int y, int x, int channel) {
    Wide r;
    UNROLL for (int i = 0; i < WIDE; i++) r.v[i] = 0.0f;
    UNROLL for (int dy = -BOX; dy <= 0; dy++)
        UNROLL for (int dx = -BOX; dx <= 0; dx++) {
            const bool inside = (u32)(y + dy) < SIZE && (u32)(x + dx) < SIZE && channel < CHANNELS;
            const int at = inside ? ((y + dy) * SIZE + x + dx) * CHANNELS + channel : 0;
            StoredWide stored = *(const StoredWide*)(digit + at);
            UNROLL for (int i = 0; i < WIDE; i++)
                r.v[i] += inside ? of_map(stored.v[i]) : 0.0f;
        }
    return r;
}

DEVICE void fill(float* held, const map_t* digit, int first_row, int first_channel) {
    const int parts = SLAB / WIDE, items = HELD_ROWS * HELD_COLUMNS * parts;
    for (int start = threadIdx.x; start < items; start += THREADS * IN_FLIGHT) {
        Wide values[IN_FLIGHT];
        UNROLL for (int n = 0; n < IN_FLIGHT; n++) {
            const int item = start + n * THREADS, column = item / parts % HELD_COLUMNS;
            const int row = first_row + item / parts / HELD_COLUMNS;
            const int channel = first_channel + WIDE * (item % parts);
            values[n] = held_at(digit, row, WHOLE ? column : column + LEFT, channel);
        }
        UNROLL for (int n = 0; n < IN_FLIGHT; n++) {
            const int item = start + n * THREADS, column = item / parts % HELD_COLUMNS;
            const int row = item / parts / HELD_COLUMNS;
            if (item < items)
                *(Wide*)(held + row * PITCH + column * SLAB + WIDE * (item % parts)) = values[n];
        }
    }
    for (int i = threadIdx.x; i < PITCH; i += THREADS) held[ZEROS + i] = 0.0f;
}

KERNEL(THREADS) c_direct(const map_t* us, map_t* uc, const float* weights) {
    DYNAMIC_SHARED(memory);
    float* held = (float*)memory;
    for (int i = threadIdx.x; i < TAPS * TAPS; i += THREADS) held[WEIGHTS + i] = weights[i];
    wait_for_previous();
    start_next();
    int top = 2 * (int)(blockIdx.x * ROWS) + LEFT, first = top < 0 ? 0 : top;
    if (first > HELD - HELD_ROWS) first = HELD - HELD_ROWS;
    fill(held, us + (u64)blockIdx.z * SIZE * SIZE * CHANNELS, first, blockIdx.y * SLAB);
    __syncthreads();

    int channel = threadIdx.x % SLAB, row = threadIdx.x / SLAB % ROWS;
    int group = threadIdx.x / SLAB / ROWS;
    float sum[NX];
    UNROLL for (int n = 0; n < NX; n++) sum[n] = 0.0f;
    const int start = top + 2 * row - first, lane = group * 2 * NX * SLAB + channel;
    NO_UNROLL for (int i = 0; i < TAPS; i++) {
        float seen[SPAN];
        const int y = start + i;
        const float* line = held + (y >= 0 && y < HELD_ROWS ? y * PITCH : ZEROS) + lane;
        UNROLL for (int x = 0; x < SPAN; x++) seen[x] = line[x * SLAB];
        const float* w = held + WEIGHTS + i * TAPS;
        if (MIRRORED) {  // from left to right as well: one weight, two taps
            UNROLL for (int j = 0; j < TAPS / 2; j++)
                if (w[j] != 0.0f) {
                    multiply_tap(sum, seen, w[j], j);
                    multiply_tap(sum, seen, w[j], TAPS - 1 - j);
                }
            if (TAPS % 2) multiply_tap(sum, seen, w[TAPS / 2], TAPS / 2);
        } else {
            UNROLL for (int j = 0; j < TAPS; j++)
                if (w[j] != 0.0f) multiply_tap(sum, seen, w[j], j);
        }
    }
    respond(uc, sum, blockIdx.x * ROWS + row, group, blockIdx.y * SLAB + channel);
}
#endif

#ifdef SEPARABLE
#define RAW (HELD_COLUMNS + 1)  // columns of the layer below the box sums

// Down the columns: four channels of column x, ROWS sums of box sums of two rows. Each input is read
// once.
DEVICE void down(float* held, const map_t* column, const float (&w)[TAPS], int top, int pitch) {
    const Float4 silence = {{0.0f, 0.0f, 0.0f, 0.0f}};
    auto row = [&](int y) {
        return y >= 0 && y < SIZE ? read_4(column + y * SIZE * CHANNELS) : silence;
    };
    Float4 sum[ROWS], before = row(top - 1);
    UNROLL for (int n = 0; n < ROWS; n++) sum[n] = silence;
    UNROLL for (int y = 0; y < SEEN_ROWS; y++) {
        const Float4 u = row(top + y);
        UNROLL for (int i = 0; i < 4; i++) before.v[i] += u.v[i];
        UNROLL for (int n = 0; n < ROWS; n++)
            if (y - 2 * n >= 0 && y - 2 * n < TAPS)
                UNROLL for (int i = 0; i < 4; i++) sum[n].v[i] += w[y - 2 * n] * before.v[i];
        before = u;
    }
    UNROLL for (int n = 0; n < ROWS; n++) *(Float4*)(held + n * pitch) = sum[n];
}

// weights: TAPS of the columns' profile, then TAPS of the rows'.
KERNEL(THREADS) c_separable(const map_t* us, map_t* uc, const float* weights) {
    DYNAMIC_SHARED(memory);
    float* held = (float*)memory;
    // rows of cells lie SLAB banks apart here
    const int pitch = (RAW * SLAB + 31) / 32 * 32 + SLAB, parts = SLAB / 4;
    float w[TAPS];
    UNROLL for (int i = 0; i < TAPS; i++) w[i] = weights[i];
    wait_for_previous();
    start_next();
    const map_t* digit = us + (u64)blockIdx.z * SIZE * SIZE * CHANNELS + blockIdx.y * SLAB;
    for (int item = threadIdx.x; item < RAW * parts; item += THREADS) {
        int part = item % parts, column = item / parts, x = column - 1 + (WHOLE ? 0 : LEFT);
        float* to = held + column * SLAB + 4 * part;
        if (x >= 0 && x < SIZE && blockIdx.y * SLAB + 4 * part < CHANNELS) {
            down(to, digit + x * CHANNELS + 4 * part, w, 2 * (int)(blockIdx.x * ROWS) + LEFT, pitch);
        } else {
            Float4 silence = {{0.0f, 0.0f, 0.0f, 0.0f}};
            for (int n = 0; n < ROWS; n++) *(Float4*)(to + n * pitch) = silence;
        }
    }
    UNROLL for (int j = 0; j < TAPS; j++) w[j] = weights[TAPS + j];
    __syncthreads();

    int channel = threadIdx.x % SLAB, row = threadIdx.x / SLAB % ROWS;
    int group = threadIdx.x / SLAB / ROWS;
    float seen[SPAN], sum[NX];
    UNROLL for (int n = 0; n < NX; n++) sum[n] = 0.0f;
    const float* line = held + row * pitch + group * 2 * NX * SLAB + channel;
    float before = line[0];
    UNROLL for (int x = 0; x < SPAN; x++) {
        const float next = line[(x + 1) * SLAB];
        seen[x] = before + next;
        before = next;
    }
    UNROLL for (int j = 0; j < TAPS; j++) multiply_tap(sum, seen, w[j], j);
    respond(uc, sum, blockIdx.x * ROWS + row, group, blockIdx.y * SLAB + channel);
}
#endif
