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
#define __device__
#define __constant__ const
#define __shared__ static thread_local
#define __restrict__ __restrict

#define DEVICE static inline
#define KERNEL(threads) extern "C" void
#define DYNAMIC_SHARED(name) u8* const name = emulation::shared_memory
#define UNROLL
#define UNROLL_BY(n)
#define NO_UNROLL

// -- vectors, aligned as on the device ----------------------------------------------------------------
#define NEOCOG_VECTORS(type, name)                                                         \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                               \
    struct alignas(4 * sizeof(type)) name##4 { type x, y, z, w; };                         \
    DEVICE name##2 make_##name##2(type x, type y) { return {x, y}; }                       \
    DEVICE name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
NEOCOG_VECTORS(float, float)
NEOCOG_VECTORS(u32, uint)
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
DEVICE float __uint_as_float(u32 x) { return emulation::bits<float>(x); }

#define NEOCOG_LEAST_GREATEST(type)                            \
    DEVICE type min(type a, type b) { return b < a ? b : a; } \
    DEVICE type max(type a, type b) { return a < b ? b : a; }
NEOCOG_LEAST_GREATEST(int)
NEOCOG_LEAST_GREATEST(u32)
#undef NEOCOG_LEAST_GREATEST

DEVICE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
DEVICE float __fdividef(float x, float y) { return x / y; }

DEVICE int __float2int_rn(float x) { return (int)rintf(x); }
DEVICE int __popc(u32 x) { return __builtin_popcount(x); }
DEVICE int __ffs(int x) { return __builtin_ffs(x); }

template <class T> DEVICE T __ldcg(const T* p) { return *p; }

// -- atomics: blocks run on several threads of the CPU ------------------------------------------------
template <class T>
DEVICE T atomicAdd(T* p, typename std::common_type<T>::type value) {  // converted to T, not deduced
    u32 old = __atomic_load_n((u32*)p, __ATOMIC_RELAXED);
    u32 next;
    do {
        next = emulation::bits<u32>((T)(emulation::bits<T>(old) + value));
    } while (!__atomic_compare_exchange_n((u32*)p, &old, next, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    return emulation::bits<T>(old);
}
DEVICE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

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
}  // namespace emulation

DEVICE float reciprocal_of(float value) { return 1.0f / value; }
DEVICE float sqrt_of(float value) { return sqrtf(value); }
DEVICE void __syncthreads(NEOCOG_CALLER) {
    asm volatile("" ::: "memory");
    emulation::barrier({"__syncthreads", file, line});
    asm volatile("" ::: "memory");
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
template <class T>
DEVICE T __shfl_sync(u32 mask, T value, int source, int width = 32, NEOCOG_CALLER) {
    u32 w = (u32)width, from = (emulation::lane() & ~(w - 1)) | ((u32)source & (w - 1));
    return emulation::shuffle(mask, value, from, {"__shfl_sync", file, line});
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
