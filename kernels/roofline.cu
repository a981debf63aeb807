// The rate of fused multiply-adds in float32, the roof over all that runs without tensor cores.
//
// Sixteen independent chains a thread hide the latency of each; the sum is written, so that none
// is dropped.
#include "platform.cuh"

#define CHAINS 16
#define STEPS 8

KERNEL(256) fma_rate(float* __restrict__ out, float factor, int rounds) {
    float sums[CHAINS];
    UNROLL for (int i = 0; i < CHAINS; ++i) sums[i] = (float)(threadIdx.x + i);
    NO_UNROLL for (int round = 0; round < rounds; ++round) {
        UNROLL for (int step = 0; step < STEPS; ++step) {
            UNROLL for (int i = 0; i < CHAINS; ++i) sums[i] = sums[i] * factor + 0.5f;
        }
    }
    float all = 0.0f;
    UNROLL for (int i = 0; i < CHAINS; ++i) all += sums[i];
    out[blockIdx.x * 256 + threadIdx.x] = all;
}
