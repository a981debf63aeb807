// Half and TF32, matrix products of a warp and asynchronous copies: what platform.cuh puts
// behind functions, with the same meaning. Included by emulation.h.
#ifndef NEOCOG_EMULATION_MATRIX_H
#define NEOCOG_EMULATION_MATRIX_H

// -- half and TF32 ------------------------------------------------------------------------------------
DEVICE float float_of_half(u16 value) {
    u32 magnitude = (u32)(value & 0x7fff) << 13, sign = (u32)(value & 0x8000) << 16;
    if (magnitude >= 0x0f800000u)  // infinity, NaN
        return __uint_as_float(sign | magnitude | 0x7f800000u);
    // The exponent's bias grows by 112; subnormals become normal in the product.
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(magnitude) * 0x1p112f));
}
DEVICE u16 half_of(float value) {  // to nearest, ties to even
    u32 bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000u) return 0x7fff;              // NaN, as cvt.rn.f16.f32 gives it
    if (magnitude >= 0x477ff000u) return (u16)(sign | 0x7c00);  // 65520 and above: infinity
    if (magnitude < 0x38800000u)  // subnormal: units of 2^-24, rounded by the sum with 0.5
        return (u16)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u));
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return (u16)(sign | (magnitude - (112u << 23)) >> 13);
}
DEVICE u32 half2_of(float first, float second) {
    return (u32)half_of(first) | (u32)half_of(second) << 16;
}
DEVICE float2 floats_of_half2(u32 pair) {
    return {float_of_half((u16)pair), float_of_half((u16)(pair >> 16))};
}
DEVICE u32 tf32_of(float value) {  // to nearest, ties away from zero
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) >= 0x7f800000u) return bits;
    return (bits + 0x1000u) & ~0x1fffu;
}

namespace emulation {
// D (16, 8) += A (16, 16) B (16, 8), two values to a register (PTX manual, mma.m16n8k16). Lane
// 4 g + t holds rows g and g + 8 of A and D, column g of B.
struct Product16 {
    float* d;
    u32 a[4], b[2];
    static void all(u32, Product16* const* lanes) {
        alignas(8) float a[16][16];
        float b[16][8];
        for (u32 i = 0; i < 32; ++i) {
            u32 g = i / 4, t = i % 4;
            for (u32 r = 0; r < 4; ++r)
                *(float2*)&a[g + r % 2 * 8][2 * t + r / 2 * 8] = floats_of_half2(lanes[i]->a[r]);
            for (u32 r = 0; r < 2; ++r) {
                float2 two = floats_of_half2(lanes[i]->b[r]);
                b[2 * t + 8 * r][g] = two.x, b[2 * t + 8 * r + 1][g] = two.y;
            }
        }
        add<16>(a, b, lanes);
    }
    template <u32 depth, class Lanes>
    static void add(const float (&a)[16][depth], const float (&b)[depth][8], Lanes lanes) {
        for (u32 i = 0; i < 32; ++i) {
            for (u32 r = 0; r < 4; ++r) {
                u32 row = i / 4 + r / 2 * 8, column = i % 4 * 2 + r % 2;
                float sum = lanes[i]->d[r];
                for (u32 k = 0; k < depth; ++k) sum += a[row][k] * b[k][column];
                lanes[i]->d[r] = sum;
            }
        }
    }
};

// D (16, 8) += A (16, 8) B (8, 8) (mma.m16n8k8); of each operand the upper 19 bits count.
struct Product8 {
    float* d;
    u32 a[4], b[2];
    static float seen(u32 operand) { return __uint_as_float(operand & ~0x1fffu); }
    static void all(u32, Product8* const* lanes) {
        float a[16][8], b[8][8];
        for (u32 i = 0; i < 32; ++i) {
            u32 g = i / 4, t = i % 4;
            for (u32 r = 0; r < 4; ++r) a[g + r % 2 * 8][t + r / 2 * 4] = seen(lanes[i]->a[r]);
            for (u32 r = 0; r < 2; ++r) b[t + 4 * r][g] = seen(lanes[i]->b[r]);
        }
        Product16::add<8>(a, b, lanes);
    }
};

template <class Product>
inline void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, const Site& site) {
    together(FULL_WARP, Product{d, {a[0], a[1], a[2], a[3]}, {b0, b1}}, site);
}

template <bool transposed>
struct Matrices {
    const u8* row;
    u32 values[4];
    static void all(u32, Matrices* const* lanes) {
        for (u32 i = 0; i < 32; ++i)
            for (u32 m = 0; m < 4; ++m)
                for (u32 j = 0; j < 2; ++j) {
                    u32 row = transposed ? i % 4 * 2 + j : i / 4, column = transposed ? i / 4 : i % 4 * 2 + j;
                    memcpy((u16*)&lanes[i]->values[m] + j, lanes[8 * m + row]->row + column * 2, 2);
                }
    }
};
template <bool transposed>
inline void load_matrices(u32 (&r)[4], const void* row, const Site& site) {
    if ((uintptr_t)row % 16)
        fail("%s (%s:%d): row %p is not a multiple of 16 bytes", site.what, site.file, site.line, row);
    Matrices<transposed> got = together(FULL_WARP, Matrices<transposed>{(const u8*)row, {}}, site);
    for (int i = 0; i < 4; ++i) r[i] = got.values[i];
}
struct Transposed {
    u32 pair, result;
    static u32 half(u32 pair, u32 upper) { return upper ? pair >> 16 : pair & 0xffffu; }
    static void all(u32, Transposed* const* lanes) {
        for (u32 i = 0; i < 32; ++i) {
            u32 column = i / 4, row = i % 4 * 2;  // of the matrix given
            u32 first = lanes[row * 4 + column / 2]->pair, second = lanes[row * 4 + 4 + column / 2]->pair;
            lanes[i]->result = half(first, column % 2) | half(second, column % 2) << 16;
        }
    }
};

inline void need_aligned(const char* part, const void* address, u32 bytes, const Site& site) {
    if ((uintptr_t)address % bytes)
        fail("the %s of %s (%s:%d): address %p is not a multiple of %u bytes", part, site.what,
             site.file, site.line, address, bytes);
}
}  // namespace emulation

DEVICE void mma_half(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, NEOCOG_CALLER) {
    emulation::multiply<emulation::Product16>(d, a, b0, b1, {"mma_half", file, line});
}
DEVICE void mma_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, NEOCOG_CALLER) {
    emulation::multiply<emulation::Product8>(d, a, b0, b1, {"mma_tf32", file, line});
}
DEVICE void load_matrix_x4(u32 (&r)[4], const void* row, NEOCOG_CALLER) {
    emulation::load_matrices<false>(r, row, {"load_matrix_x4", file, line});
}
DEVICE void load_matrix_x4_transposed(u32 (&r)[4], const void* row, NEOCOG_CALLER) {
    emulation::load_matrices<true>(r, row, {"load_matrix_x4_transposed", file, line});
}
DEVICE u32 transpose_matrix(u32 pair, NEOCOG_CALLER) {
    emulation::Site site{"transpose_matrix", file, line};
    return emulation::together(FULL_WARP, emulation::Transposed{pair, 0}, site).result;
}

// -- asynchronous copies ------------------------------------------------------------------------------
DEVICE void copy_late(void* to, const void* from, u32 bytes, const emulation::Site& site) {
    emulation::need_aligned("target", to, bytes, site);
    emulation::need_aligned("source", from, bytes, site);
    emulation::copy_late(to, from, bytes);
}
DEVICE void copy_async_16(void* shared, const void* global, NEOCOG_CALLER) {
    copy_late(shared, global, 16, {"copy_async_16", file, line});
}
DEVICE void copy_async_16_or_0(void* shared, const void* global, bool given, NEOCOG_CALLER) {
    alignas(16) static const u8 nothing[16] = {};
    copy_late(shared, given ? global : nothing, 16, {"copy_async_16_or_0", file, line});
}
DEVICE void copy_async_4(void* shared, const void* global, NEOCOG_CALLER) {
    copy_late(shared, global, 4, {"copy_async_4", file, line});
}
DEVICE void copy_async_commit() { emulation::commit_copies(); }
template <int pending>
DEVICE void copy_async_wait() {
    emulation::wait_for_copies(pending);
    asm volatile("" ::: "memory");
}

#endif  // NEOCOG_EMULATION_MATRIX_H
