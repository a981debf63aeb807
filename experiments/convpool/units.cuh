// Units: 16 bytes of neighbouring channels, as MAP says, added up in float32.
#ifndef NEOCOG_UNITS_CUH
#define NEOCOG_UNITS_CUH
#include "platform.cuh"

#define VALUES (MAP == 0 ? 4 : 8)

// The values of a unit, or their sum with what is there.
DEVICE void add_unit(float (&sum)[VALUES], const uint4& unit, bool first = false) {
    const u32 words[4] = {unit.x, unit.y, unit.z, unit.w};
    float v[VALUES];
    UNROLL for (int i = 0; i < 4; i++) {
#if MAP == 0
        v[i] = __uint_as_float(words[i]);
#else
        const float2 two = floats_of_half2(words[i]);
        v[2 * i] = two.x, v[2 * i + 1] = two.y;
#endif
    }
    UNROLL for (int i = 0; i < VALUES; i++) sum[i] = first ? v[i] : sum[i] + v[i];
}

// The sums, each times `share`, as MAP says.
DEVICE uint4 unit_of(const float (&sum)[VALUES], float share) {
    u32 words[4];
    UNROLL for (int i = 0; i < 4; i++) {
#if MAP == 0
        words[i] = __float_as_uint(sum[i] * share);
#else
        words[i] = half2_of(sum[2 * i] * share, sum[2 * i + 1] * share);
#endif
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

#if MAP != 0
// a b + c of two halves each.
DEVICE u32 fma2(u32 a, u32 b, u32 c) {
#ifdef NEOCOG_EMULATED
    u32 r = 0;
    for (int i = 0; i < 32; i += 16) {
        const float x = of_map((u16)(a >> i)), y = of_map((u16)(b >> i)), z = of_map((u16)(c >> i));
        r |= (u32)to_map((float)((double)x * y + z)) << i;
    }
    return r;
#else
    u32 r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
#endif
}
DEVICE uint4 fma8(const uint4& a, u32 b, const uint4& c) {
    return make_uint4(fma2(a.x, b, c.x), fma2(a.y, b, c.y), fma2(a.z, b, c.z), fma2(a.w, b, c.w));
}
// A number as both halves of a pair.
DEVICE u32 pair_of(float value) { return half2_of(value, value); }
#endif

#endif  // NEOCOG_UNITS_CUH
