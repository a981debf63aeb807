// The CUDA language and the functions of platform.cuh for a plain C++17 compiler, so that the very
// same kernels run on a CPU and are tested there. emulation_block.cpp runs the threads of a block.
//
// Stricter than a GPU on purpose: asynchronous copies happen as late as they may, dynamic shared
// memory starts as NaN and is watched at both ends, addresses must be aligned, every thread must
// reach every barrier and every lane of the mask its warp's collectives. What must differ: static
// __shared__ memory keeps what the block before left, and sums of atomics on floats depend on the
// order of the blocks, as on a GPU.
#ifndef NEOCOG_EMULATION_H
#define NEOCOG_EMULATION_H

#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // C's alone: half the time of a build
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>
#include <utility>

#include "emulation_block.h"

// -- words of the language --------------------------------------------------------------------------
#define __global__
#define __host__
#define __device__
#define __constant__ const
#define __shared__ static thread_local
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) alignas(n)
#define __launch_bounds__(...)

#define DEVICE static inline
#define KERNEL(threads) extern "C" void
#define DYNAMIC_SHARED(name) u8* const name = emulation::shared_memory
#define UNROLL
#define UNROLL_BY(n)
#define NO_UNROLL
#define warpSize 32

// -- vectors, aligned as on the device ----------------------------------------------------------------
#define NEOCOG_VECTORS(type, name)                                                         \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                               \
    struct name##3 { type x, y, z; };                                                      \
    struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; }; \
    DEVICE name##2 make_##name##2(type x, type y) { return {x, y}; }                       \
    DEVICE name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }            \
    DEVICE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
NEOCOG_VECTORS(signed char, char)
NEOCOG_VECTORS(u8, uchar)
NEOCOG_VECTORS(short, short)
NEOCOG_VECTORS(u16, ushort)
NEOCOG_VECTORS(int, int)
NEOCOG_VECTORS(long long, longlong)
NEOCOG_VECTORS(u64, ulonglong)
NEOCOG_VECTORS(float, float)
NEOCOG_VECTORS(double, double)
#define uint3 emulation_uint3  // threadIdx has that type already
NEOCOG_VECTORS(u32, uint)
#undef uint3
#undef NEOCOG_VECTORS

// -- bits and arithmetic ------------------------------------------------------------------------------
namespace emulation {
template <class To, class From>
inline To bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    memcpy(&to, &value, sizeof to);
    return to;
}
}  // namespace emulation

DEVICE u32 __float_as_uint(float x) { return emulation::bits<u32>(x); }
DEVICE int __float_as_int(float x) { return emulation::bits<int>(x); }
DEVICE float __uint_as_float(u32 x) { return emulation::bits<float>(x); }
DEVICE float __int_as_float(int x) { return emulation::bits<float>(x); }

#define NEOCOG_LEAST_GREATEST(type)                            \
    DEVICE type min(type a, type b) { return b < a ? b : a; } \
    DEVICE type max(type a, type b) { return a < b ? b : a; }
NEOCOG_LEAST_GREATEST(int)
NEOCOG_LEAST_GREATEST(u32)
NEOCOG_LEAST_GREATEST(long)
NEOCOG_LEAST_GREATEST(unsigned long)
NEOCOG_LEAST_GREATEST(long long)
NEOCOG_LEAST_GREATEST(u64)
#undef NEOCOG_LEAST_GREATEST
DEVICE u32 min(int a, u32 b) { return min((u32)a, b); }
DEVICE u32 min(u32 a, int b) { return min(a, (u32)b); }
DEVICE u32 max(int a, u32 b) { return max((u32)a, b); }
DEVICE u32 max(u32 a, int b) { return max(a, (u32)b); }
DEVICE float min(float a, float b) { return fminf(a, b); }
DEVICE float max(float a, float b) { return fmaxf(a, b); }
DEVICE double min(double a, double b) { return fmin(a, b); }
DEVICE double max(double a, double b) { return fmax(a, b); }

DEVICE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
DEVICE float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
DEVICE float __frcp_rn(float x) { return 1.0f / x; }
DEVICE float __fsqrt_rn(float x) { return sqrtf(x); }
DEVICE float __frsqrt_rn(float x) { return rsqrtf(x); }
DEVICE float __fdividef(float x, float y) { return x / y; }
DEVICE float __fdiv_rn(float x, float y) { return x / y; }
DEVICE float __fadd_rn(float x, float y) { return x + y; }
DEVICE float __fsub_rn(float x, float y) { return x - y; }
DEVICE float __fmul_rn(float x, float y) { return x * y; }
DEVICE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
// The C library keeps these names for itself: macros.
#define __expf(x) expf(x)
#define __exp10f(x) powf(10.0f, x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)

DEVICE int __float2int_rn(float x) { return (int)rintf(x); }
DEVICE int __float2int_rd(float x) { return (int)floorf(x); }
DEVICE int __float2int_rz(float x) { return (int)x; }
DEVICE u32 __float2uint_rn(float x) { return (u32)rintf(x); }
DEVICE u32 __float2uint_rz(float x) { return (u32)x; }
DEVICE float __int2float_rn(int x) { return (float)x; }
DEVICE float __uint2float_rn(u32 x) { return (float)x; }
DEVICE int __popc(u32 x) { return __builtin_popcount(x); }
DEVICE int __clz(int x) { return x ? __builtin_clz((u32)x) : 32; }
DEVICE int __ffs(int x) { return __builtin_ffs(x); }
DEVICE u32 __brev(u32 x) {
    u32 r = 0;
    for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
    return r;
}
DEVICE int __mul24(int x, int y) { return x * y; }
DEVICE u32 __umulhi(u32 x, u32 y) { return (u32)((u64)x * y >> 32); }
DEVICE int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
// Four bytes of the eight of x (0 .. 3) and y (4 .. 7).
DEVICE u32 __byte_perm(u32 x, u32 y, u32 selector) {
    u64 both = (u64)y << 32 | x;
    u32 r = 0;
    for (int i = 0; i < 4; ++i) {
        u32 chosen = selector >> 4 * i, byte = (u32)(both >> 8 * (chosen & 7)) & 0xff;
        if (chosen & 8) byte = byte & 0x80 ? 0xff : 0;
        r |= byte << 8 * i;
    }
    return r;
}

template <class T> DEVICE T __ldg(const T* p) { return *p; }
template <class T> DEVICE T __ldcg(const T* p) { return *p; }
template <class T> DEVICE T __ldcs(const T* p) { return *p; }
template <class T> DEVICE T __ldca(const T* p) { return *p; }
template <class T> DEVICE void __stcg(T* p, T value) { *p = value; }
template <class T> DEVICE void __stcs(T* p, T value) { *p = value; }

// -- atomics: blocks run on several threads of the CPU ------------------------------------------------
namespace emulation {
template <class T, class Change>
inline T change(T* p, Change next) {
    typedef typename std::conditional<sizeof(T) == 4, u32, u64>::type Word;
    Word old = __atomic_load_n((Word*)p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n((Word*)p, &old, bits<Word>((T)next(bits<T>(old))), false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    return bits<T>(old);
}
template <class T> struct Same { typedef T type; };
template <class T> using As = typename Same<T>::type;  // converted to T, not deduced
}  // namespace emulation

#define NEOCOG_ATOMIC(name, expression)                                              \
    template <class T>                                                               \
    DEVICE T name(T* p, emulation::As<T> value) {                                    \
        return emulation::change(p, [=](T old) { return (T)(expression); });         \
    }
NEOCOG_ATOMIC(atomicAdd, old + value)
NEOCOG_ATOMIC(atomicSub, old - value)
NEOCOG_ATOMIC(atomicMax, old < value ? value : old)
NEOCOG_ATOMIC(atomicMin, value < old ? value : old)
NEOCOG_ATOMIC(atomicOr, old | value)
NEOCOG_ATOMIC(atomicAnd, old & value)
NEOCOG_ATOMIC(atomicXor, old ^ value)
NEOCOG_ATOMIC(atomicExch, value)
NEOCOG_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
#undef NEOCOG_ATOMIC
template <class T>
DEVICE T atomicCAS(T* p, emulation::As<T> expected, emulation::As<T> value) {
    return emulation::change(p, [=](T old) { return old == expected ? value : old; });
}
DEVICE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
DEVICE void __threadfence_block() { __threadfence(); }

// -- barriers and collectives; `file` and `line` are the caller's ------------------------------------
#define NEOCOG_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()
constexpr u32 FULL_WARP = 0xffffffffu;

namespace emulation {
// Gather an operand of each lane, let Operand::all act on them, return what it made of this lane's.
template <class Operand>
inline Operand together(u32 mask, Operand operand, const Site& site) {
    asm volatile("" ::: "memory");
    collective(
        mask, &operand,
        [](u32 present, void* const* operands) { Operand::all(present, (Operand* const*)operands); },
        site);
    asm volatile("" ::: "memory");
    return operand;
}
inline u32 meet(bool vote, const Site& site) {
    asm volatile("" ::: "memory");
    u32 votes = barrier(site, vote);
    asm volatile("" ::: "memory");
    return votes;
}
}  // namespace emulation

DEVICE float reciprocal_of(float value) { return 1.0f / value; }
DEVICE float sqrt_of(float value) { return sqrtf(value); }
DEVICE void __syncthreads(NEOCOG_CALLER) { emulation::meet(false, {"__syncthreads", file, line}); }
DEVICE int __syncthreads_count(int vote, NEOCOG_CALLER) {
    return (int)emulation::meet(vote != 0, {"__syncthreads_count", file, line});
}
DEVICE int __syncthreads_or(int vote, NEOCOG_CALLER) {
    return emulation::meet(vote != 0, {"__syncthreads_or", file, line}) != 0;
}
DEVICE int __syncthreads_and(int vote, NEOCOG_CALLER) {
    return emulation::meet(vote == 0, {"__syncthreads_and", file, line}) == 0;
}

namespace emulation {
struct Meeting {
    static void all(u32, Meeting* const*) {}
};
struct Ballot {
    bool vote;
    u32 votes;
    static void all(u32 mask, Ballot* const* lanes) {
        u32 votes = 0;
        for (u32 i = 0; i < 32; ++i)
            if (mask >> i & 1 && lanes[i]->vote) votes |= 1u << i;
        for (u32 i = 0; i < 32; ++i)
            if (mask >> i & 1) lanes[i]->votes = votes;
    }
};
template <class T>
struct Shuffle {
    T value;
    u32 source;
    T result;
    static void all(u32 mask, Shuffle* const* lanes) {
        for (u32 i = 0; i < 32; ++i) {
            if (!(mask >> i & 1)) continue;
            u32 source = lanes[i]->source;
            if (!(mask >> source & 1))
                fail("lane %u shuffles from lane %u, which the mask %08x lacks", i, source, mask);
            lanes[i]->result = lanes[source]->value;
        }
    }
};
template <class T>
inline T shuffle(u32 mask, T value, u32 source, const Site& site) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    return together(mask, Shuffle<T>{value, source, value}, site).result;
}
inline u32 lane() { return threadIdx.x % 32; }
}  // namespace emulation

DEVICE void __syncwarp(u32 mask = FULL_WARP, NEOCOG_CALLER) {
    emulation::together(mask, emulation::Meeting{}, {"__syncwarp", file, line});
}
DEVICE u32 __ballot_sync(u32 mask, int vote, NEOCOG_CALLER) {
    emulation::Ballot ballot{vote != 0, 0};
    return emulation::together(mask, ballot, {"__ballot_sync", file, line}).votes;
}
DEVICE int __any_sync(u32 mask, int vote, NEOCOG_CALLER) {
    return __ballot_sync(mask, vote, file, line) != 0;
}
DEVICE int __all_sync(u32 mask, int vote, NEOCOG_CALLER) {
    return __ballot_sync(mask, vote, file, line) == mask;
}
template <class T>
DEVICE T __shfl_sync(u32 mask, T value, int source, int width = 32, NEOCOG_CALLER) {
    u32 w = (u32)width, from = (emulation::lane() & ~(w - 1)) | ((u32)source & (w - 1));
    return emulation::shuffle(mask, value, from, {"__shfl_sync", file, line});
}
template <class T>
DEVICE T __shfl_up_sync(u32 mask, T value, u32 delta, int width = 32, NEOCOG_CALLER) {
    u32 lane = emulation::lane(), within = lane & ((u32)width - 1);
    u32 from = within < delta ? lane : lane - delta;
    return emulation::shuffle(mask, value, from, {"__shfl_up_sync", file, line});
}
template <class T>
DEVICE T __shfl_down_sync(u32 mask, T value, u32 delta, int width = 32, NEOCOG_CALLER) {
    u32 lane = emulation::lane(), within = lane & ((u32)width - 1);
    u32 from = within + delta < (u32)width ? lane + delta : lane;
    return emulation::shuffle(mask, value, from, {"__shfl_down_sync", file, line});
}
template <class T>
DEVICE T __shfl_xor_sync(u32 mask, T value, int flipped, int width = 32, NEOCOG_CALLER) {
    u32 lane = emulation::lane(), from = lane ^ (u32)flipped;
    if (from > (lane | ((u32)width - 1))) from = lane;
    return emulation::shuffle(mask, value, from, {"__shfl_xor_sync", file, line});
}

#include "emulation_matrix.h"

// -- the launch before this one is over when a kernel starts ------------------------------------------
DEVICE void wait_for_previous() {}
DEVICE void start_next() {}

#include "emulation_launch.h"

#endif  // NEOCOG_EMULATION_H
