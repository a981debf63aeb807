// V-cells: v(n) = sqrt( sum_nu c(nu) sum_k u(n + nu, k)^2 ), float32, for the versions of the S-layers
// that do not hold their input in shared memory themselves.
//
// Ladder of versions (what each added):
//   1  the planes are summed first, into shared memory, then one kernel c: the same weights serve
//      every plane, so K' times fewer multiplications.
//   2  a thread computes STRIP cells of a column and reads each row of its window once.
#include "platform.cuh"

// WIDTH of the input with its border; CHANNELS stored; KSIZE kernel; OUT cells a side; STRIP cells of
// a column a thread, STRIPS of them a block.
#define ROWS (STRIP * STRIPS)
#define SEEN (ROWS + KSIZE - 1)
#define THREADS 256
#define VECTOR (CHANNELS % 4 == 0 ? 4 : 2)
#define PARTS (CHANNELS % 16 == 0 ? 4 : 1)  // lanes that share a pixel's planes

struct alignas(VECTOR * sizeof(map_t)) Stored {
    map_t v[VECTOR];
};

KERNEL(THREADS) inhibition(const map_t* u, const float* c, float* v) {
    DYNAMIC_SHARED(memory);
    float* energy = (float*)memory;
    float* weights = energy + SEEN * WIDTH;
    for (int i = threadIdx.x; i < KSIZE * KSIZE; i += THREADS) weights[i] = c[i];
    wait_for_previous();
    start_next();
    const int first = blockIdx.x * ROWS;
    const map_t* digit = u + (u64)blockIdx.z * WIDTH * WIDTH * CHANNELS;
    const int part = threadIdx.x % PARTS;
    for (int start = 0; start < SEEN * WIDTH; start += THREADS / PARTS) {
        const int pixel = start + threadIdx.x / PARTS;
        float sum = 0.0f;
        if (pixel < SEEN * WIDTH && first + pixel / WIDTH < WIDTH) {
            const Stored* at = (const Stored*)(digit + (first * WIDTH + pixel) * CHANNELS);
            UNROLL for (int i = 0; i < CHANNELS / VECTOR / PARTS; i++) {
                Stored stored = at[i * PARTS + part];
                UNROLL for (int k = 0; k < VECTOR; k++) {
                    float value = of_map(stored.v[k]);
                    sum = fmaf(value, value, sum);
                }
            }
        }
        UNROLL for (int step = PARTS / 2; step; step /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (part == 0 && pixel < SEEN * WIDTH) energy[pixel] = sum;
    }
    __syncthreads();
    for (int item = threadIdx.x; item < OUT * STRIPS; item += THREADS) {
        const int column = item % OUT, strip = item / OUT * STRIP;
        float sum[STRIP];
        UNROLL for (int n = 0; n < STRIP; n++) sum[n] = 0.0f;
        NO_UNROLL for (int j = 0; j < KSIZE; j++) {
            const float* at = energy + strip * WIDTH + column + j;
            float w[KSIZE];
            UNROLL for (int i = 0; i < KSIZE; i++) w[i] = weights[i * KSIZE + j];
            UNROLL for (int y = 0; y < STRIP + KSIZE - 1; y++) {
                float value = at[y * WIDTH];
                UNROLL for (int n = 0; n < STRIP; n++)
                    if (y - n >= 0 && y - n < KSIZE) sum[n] = fmaf(w[y - n], value, sum[n]);
            }
        }
        UNROLL for (int n = 0; n < STRIP; n++) {
            const int row = first + strip + n;
            if (row < OUT) v[((u64)blockIdx.z * OUT + row) * OUT + column] = sqrtf(sum[n]);
        }
    }
}
