// S-cells as Ikeda et al. (2011) made them quicker rung by rung, float32, built anew to be measured.
//
// Ladder of versions (their section 5; times beside ours: neocog bench slayer):
//   T1    one thread gathers one cell, 256 threads a block, so that each response is written once. v
//         was computed before by a kernel of its own and comes from global memory.
//   T3    a skewer a block (T2): all planes of one place, one thread each. The inhibition is computed
//         together with the excitation from the same input, and v is never written. One grid (T3).
//   T4    PLACES neighbouring cells of a row a block, their input in shared memory, where windows
//         overlap; as many places as a trial finds best (blockDim.x is PLACES x STRIDE).
//   T5    which inputs a cell has is not worked out any more: a list of them (the reverse index) lies
//         in constant memory.
//
// Commit 7628e6b2 has three more: a test for silence in each thread (T5, u > 0), planes padded to whole
// warps (B), and lists of the inputs that are heard (skip).
//
// The paper does not say how its arrays lie. Here maps are channel-last and weights lie plane by plane,
// so that the threads of neighbouring planes read and write neighbouring values; maps have no silent
// border, so T1, T3 and T4 ask of every tap whether it lies on the layer and in the connecting area.
#include "platform.cuh"

// KSIZE kernel, PAD its padding; SIZE rows and columns of the input, DEPTH its planes; OUT cells a
// side; PLANES of the output, STRIDE threads and weights for them; DISC the connecting area: taps
// whose distance from the centre, in half cells, squared, is at most that.
DEVICE bool on_layer(int row, int column) {
    return row >= 0 && row < SIZE && column >= 0 && column < SIZE;
}

DEVICE const float* digit_of(const float* u) { return u + (u64)blockIdx.z * SIZE * SIZE * DEPTH; }

DEVICE u64 response_at(int place, int plane) {
    return ((u64)blockIdx.z * OUT * OUT + place) * PLANES + plane;
}

// Add each tap of a place that lies on the layer and in the connecting area: (tap, row, column).
template <typename Add>
DEVICE void each_tap(int place_y, int place_x, const Add& add) {
    NO_UNROLL for (int ky = 0; ky < KSIZE; ky++)
        NO_UNROLL for (int kx = 0; kx < KSIZE; kx++) {
            const int y = 2 * ky - (KSIZE - 1), x = 2 * kx - (KSIZE - 1);
            const int row = place_y + ky - PAD, column = place_x + kx - PAD;
            if (y * y + x * x <= DISC && on_layer(row, column)) add(ky * KSIZE + kx, row, column);
        }
}

// weights (KSIZE^2, DEPTH, STRIDE), c (KSIZE^2), silence (PLANES); u (batch, SIZE, SIZE, DEPTH);
// us (batch, OUT, OUT, PLANES); v (batch, OUT, OUT)
#if VERSION == 1
KERNEL(256) s_paper_v(const float* u, const float* c, float* v) {
    wait_for_previous();
    start_next();
    const int place = blockIdx.x * 256 + threadIdx.x;
    if (place >= OUT * OUT) return;
    u = digit_of(u);
    float sum = 0.0f;
    each_tap(place / OUT, place % OUT, [&](int tap, int row, int column) {
        const float* at = u + (row * SIZE + column) * DEPTH;
        for (int k = 0; k < DEPTH; k++) sum = fmaf(c[tap] * at[k], at[k], sum);
    });
    v[(u64)blockIdx.z * OUT * OUT + place] = sqrtf(sum);
}

KERNEL(256) s_paper_t1(const float* u, const float* weights, const float* v, const float* silence,
                       float* us, float theta) {
    wait_for_previous();
    start_next();
    const int cell = blockIdx.x * 256 + threadIdx.x;
    if (cell >= OUT * OUT * PLANES) return;
    const int place = cell / PLANES, plane = cell % PLANES;
    u = digit_of(u);
    float e = 0.0f;
    each_tap(place / OUT, place % OUT, [&](int tap, int row, int column) {
        const float* at = u + (row * SIZE + column) * DEPTH;
        const float* w = weights + tap * DEPTH * STRIDE + plane;
        for (int k = 0; k < DEPTH; k++) e = fmaf(w[k * STRIDE], at[k], e);
    });
    us[response_at(place, plane)] =
        s_response(e, v[(u64)blockIdx.z * OUT * OUT + place], theta, silence[plane]);
}
#else

// One tap of all input planes: excitation, and the energy that the inhibition weighs by c.
DEVICE void add_tap(float& e, float& square, const float* at, const float* w, float c) {
    float energy = 0.0f;
    for (int k = 0; k < DEPTH; k++) {
        const float value = at[k];
        e = fmaf(w[k * STRIDE], value, e);
        energy = fmaf(value, value, energy);
    }
    square = fmaf(c, energy, square);
}
#endif

#if VERSION == 3
KERNEL(STRIDE) s_paper_t3(const float* u, const float* weights, const float* c,
                          const float* silence, float* us, float theta) {
    wait_for_previous();
    start_next();
    const int place = blockIdx.x, plane = threadIdx.x;
    u = digit_of(u);
    float e = 0.0f, square = 0.0f;
    each_tap(place / OUT, place % OUT, [&](int tap, int row, int column) {
        add_tap(e, square, u + (row * SIZE + column) * DEPTH, weights + tap * DEPTH * STRIDE + plane, c[tap]);
    });
    us[response_at(place, plane)] = s_response(e, sqrtf(square), theta, silence[plane]);
}
#endif

#if VERSION == 4 || VERSION == 5
// Input of a block's places, one window row after another within each column of the layer: the window
// of a place is one run, wherever the place lies.
DEVICE void fill(float* input, const float* u, int first_row, int first_column, int columns) {
    for (int i = threadIdx.x; i < columns * KSIZE * DEPTH; i += blockDim.x) {
        const int pixel = i / DEPTH;
        const int row = first_row + pixel % KSIZE, column = first_column + pixel / KSIZE;
        input[i] = on_layer(row, column) ? u[(row * SIZE + column) * DEPTH + i % DEPTH] : 0.0f;
    }
}

#if VERSION == 5
// The inputs of a cell: where each tap lies in the window, and in the weights; its weight c.
__constant__ int inputs_at[] = {INPUTS_AT};
__constant__ int inputs_tap[] = {INPUTS_TAP};
__constant__ float inputs_c[] = {INPUTS_C};
#endif

KERNEL(1024) s_paper_shared(const float* u, const float* weights, const float* c,
                            const float* silence, float* us, float theta) {
    DYNAMIC_SHARED(memory);
    float* input = (float*)memory;
    const int places = blockDim.x / STRIDE, strips = (OUT + places - 1) / places;
    const int y = blockIdx.x / strips, first = blockIdx.x % strips * places;
    wait_for_previous();
    start_next();
    fill(input, digit_of(u), y - PAD, first - PAD, places + KSIZE - 1);
    __syncthreads();
    const int x = first + threadIdx.x / STRIDE, plane = threadIdx.x % STRIDE;
    if (x >= OUT || plane >= PLANES) return;
    input += (x - first) * (KSIZE * DEPTH);
    float e = 0.0f, square = 0.0f;
#if VERSION == 4
    each_tap(y, x, [&](int tap, int, int) {
        add_tap(e, square, input + (tap % KSIZE * KSIZE + tap / KSIZE) * DEPTH,
                weights + tap * DEPTH * STRIDE + plane, c[tap]);
    });
#else
    NO_UNROLL for (int i = 0; i < INPUTS; i++)
        add_tap(e, square, input + inputs_at[i], weights + inputs_tap[i] + plane, inputs_c[i]);
#endif
    us[response_at(y * OUT + x, plane)] = s_response(e, sqrtf(square), theta, silence[plane]);
}
#endif
