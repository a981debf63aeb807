// Matrix products of a warpgroup (four warps): wgmma, with the A operand in registers and the B
// operand in shared memory. Needs sm_90a.
//
// A tile of B is 8 columns x 32 bytes of depth, 256 bytes: the first 16 bytes of depth of each of
// the 8 columns, then the second; tiles follow one another. d and a lie in the lanes as for
// mma.sync m16n8, warp w of the group holding rows 16 w .. 16 w + 15.
#ifndef NEOCOG_WGMMA_CUH
#define NEOCOG_WGMMA_CUH
#include "platform.cuh"

#if !WGMMA
DEVICE void fence_async_proxy() {}
#elif defined(NEOCOG_EMULATED)
// The same sums, one mma.sync a tile and at once.
template <int mode, int tiles>
DEVICE void wgmma(float (&d)[tiles][4], const u32 (&a)[4], const void* b) {
    const int lane = threadIdx.x % 32;
    for (int n = 0; n < tiles; n++) {
        const u32* at = (const u32*)b + n * 64 + lane / 4 * 4 + lane % 4;
        if (mode == 1) mma_bf16(d[n], a, at[0], at[32]);
        else if (mode == 2) mma_tf32(d[n], a, at[0], at[32]);
        else mma_half(d[n], a, at[0], at[32]);
    }
}
DEVICE void wgmma_fence() {}
DEVICE void wgmma_commit() {}
template <int pending>
DEVICE void wgmma_wait() {}
DEVICE void fence_async_proxy() {}
#else

// Where B lies, for the instruction: no swizzle, 128 bytes between halves of the depth, 256 between
// tiles.
DEVICE u64 wgmma_descriptor(const void* b) {
    const u32 address = (u32)__cvta_generic_to_shared(b);
    return (u64)((address & 0x3ffffu) >> 4) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32;
}
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }
// Makes what was written to shared memory by ordinary means visible to wgmma.
DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#define WGMMA_TILE(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define WGMMA_OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
#define WGMMA_TYPES(mode, text) \
    if constexpr (mode == 2) \
        text("k8.f32.tf32.tf32", ""); \
    else if constexpr (mode == 1) \
        text("k16.f32.bf16.bf16", ", 0"); \
    else \
        text("k16.f32.f16.f16", ", 0");

// d += a b: mode 0, 3 half, 1 bfloat16, 2 TF32.
template <int mode, int tiles>
DEVICE void wgmma(float (&d)[tiles][4], const u32 (&a)[4], const void* from) {
    const u64 b = wgmma_descriptor(from);
#define WGMMA_2(types, transpose) \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n16" types " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7" \
        "}, {%8, %9, %10, %11}, %12, 1, 1, 1" transpose ";" \
        : WGMMA_TILE(0), WGMMA_TILE(1) \
        : WGMMA_OPERANDS)
    if constexpr (tiles == 2) {
        WGMMA_TYPES(mode, WGMMA_2)
    }
#define WGMMA_4(types, transpose) \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n32" types " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
        "}, {%16, %17, %18, %19}, %20, 1, 1, 1" transpose ";" \
        : WGMMA_TILE(0), WGMMA_TILE(1), WGMMA_TILE(2), WGMMA_TILE(3) \
        : WGMMA_OPERANDS)
    else if constexpr (tiles == 4) {
        WGMMA_TYPES(mode, WGMMA_4)
    }
#define WGMMA_5(types, transpose) \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n40" types " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
        "%16, %17, %18, %19" \
        "}, {%20, %21, %22, %23}, %24, 1, 1, 1" transpose ";" \
        : WGMMA_TILE(0), WGMMA_TILE(1), WGMMA_TILE(2), WGMMA_TILE(3), WGMMA_TILE(4) \
        : WGMMA_OPERANDS)
    else if constexpr (tiles == 5) {
        WGMMA_TYPES(mode, WGMMA_5)
    }
#define WGMMA_8(types, transpose) \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n64" types " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
        "}, {%32, %33, %34, %35}, %36, 1, 1, 1" transpose ";" \
        : WGMMA_TILE(0), WGMMA_TILE(1), WGMMA_TILE(2), WGMMA_TILE(3), WGMMA_TILE(4), \
          WGMMA_TILE(5), WGMMA_TILE(6), WGMMA_TILE(7) \
        : WGMMA_OPERANDS)
    else if constexpr (tiles == 8) {
        WGMMA_TYPES(mode, WGMMA_8)
    }
#define WGMMA_9(types, transpose) \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n72" types " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
        "%32, %33, %34, %35" \
        "}, {%36, %37, %38, %39}, %40, 1, 1, 1" transpose ";" \
        : WGMMA_TILE(0), WGMMA_TILE(1), WGMMA_TILE(2), WGMMA_TILE(3), WGMMA_TILE(4), \
          WGMMA_TILE(5), WGMMA_TILE(6), WGMMA_TILE(7), WGMMA_TILE(8) \
        : WGMMA_OPERANDS)
    else if constexpr (tiles == 9) {
        WGMMA_TYPES(mode, WGMMA_9)
    }
#define WGMMA_10(types, transpose) \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n80" types " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
        "%32, %33, %34, %35, %36, %37, %38, %39" \
        "}, {%40, %41, %42, %43}, %44, 1, 1, 1" transpose ";" \
        : WGMMA_TILE(0), WGMMA_TILE(1), WGMMA_TILE(2), WGMMA_TILE(3), WGMMA_TILE(4), \
          WGMMA_TILE(5), WGMMA_TILE(6), WGMMA_TILE(7), WGMMA_TILE(8), WGMMA_TILE(9) \
        : WGMMA_OPERANDS)
    else if constexpr (tiles == 10) {
        WGMMA_TYPES(mode, WGMMA_10)
    }
#define WGMMA_3(types, transpose) \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n24" types " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11" \
        "}, {%12, %13, %14, %15}, %16, 1, 1, 1" transpose ";" \
        : WGMMA_TILE(0), WGMMA_TILE(1), WGMMA_TILE(2) \
        : WGMMA_OPERANDS)
    else if constexpr (tiles == 3) {
        WGMMA_TYPES(mode, WGMMA_3)
    }
#define WGMMA_6(types, transpose) \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n48" types " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
        "%16, %17, %18, %19, %20, %21, %22, %23" \
        "}, {%24, %25, %26, %27}, %28, 1, 1, 1" transpose ";" \
        : WGMMA_TILE(0), WGMMA_TILE(1), WGMMA_TILE(2), WGMMA_TILE(3), WGMMA_TILE(4), \
          WGMMA_TILE(5) \
        : WGMMA_OPERANDS)
    else if constexpr (tiles == 6) {
        WGMMA_TYPES(mode, WGMMA_6)
    }
    else
        static_assert(tiles == 0, "wgmma: no instruction for this many tiles");
}
#endif
#endif  // NEOCOG_WGMMA_CUH
