// Units: 16 bytes of neighbouring channels, as MAP says, added up in float32.
#ifndef NEOCOG_UNITS_CUH
#define NEOCOG_UNITS_CUH
#include "pipeline.cuh"

#define VALUES (MAP == 0 ? 4 : 8)

DEVICE void add_unit(float (&sum)[VALUES], const uint4& unit) {
    const u32 words[4] = {unit.x, unit.y, unit.z, unit.w};
    UNROLL for (int i = 0; i < 4; i++) {
#if MAP == 0
        sum[i] += __uint_as_float(words[i]);
#elif MAP == 1
        const float2 two = floats_of_half2(words[i]);
        sum[2 * i] += two.x, sum[2 * i + 1] += two.y;
#else
        sum[2 * i] += __uint_as_float(words[i] << 16);
        sum[2 * i + 1] += __uint_as_float(words[i] & 0xffff0000u);
#endif
    }
}

// The sums, each times `share`, as MAP says.
DEVICE uint4 unit_of(const float (&sum)[VALUES], float share) {
    u32 words[4];
    UNROLL for (int i = 0; i < 4; i++) {
#if MAP == 0
        words[i] = __float_as_uint(sum[i] * share);
#elif MAP == 1
        words[i] = half2_of(sum[2 * i] * share, sum[2 * i + 1] * share);
#else
        words[i] = bf16x2_of(sum[2 * i] * share, sum[2 * i + 1] * share);
#endif
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

#endif  // NEOCOG_UNITS_CUH
