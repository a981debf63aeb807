// Matrix products of a warpgroup (four warps): wgmma, with the A operand in registers and the B
// operand in shared memory, both halves. Needs sm_90a.
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
template <int tiles>
DEVICE void wgmma(float (&d)[tiles][4], const u32 (&a)[4], const void* b) {
    const int lane = threadIdx.x % 32;
    for (int n = 0; n < tiles; n++) {
        const u32* at = (const u32*)b + n * 64 + lane / 4 * 4 + lane % 4;
        mma_half(d[n], a, at[0], at[32]);
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

#define SUMS_2 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SUMS_3 SUMS_2 ", %8, %9, %10, %11"
#define SUMS_4 SUMS_3 ", %12, %13, %14, %15"
#define SUMS_5 SUMS_4 ", %16, %17, %18, %19"
#define SUMS_6 SUMS_5 ", %20, %21, %22, %23"
#define SUMS_8 SUMS_6 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define SUMS_9 SUMS_8 ", %32, %33, %34, %35"
#define SUMS_10 SUMS_9 ", %36, %37, %38, %39"
#define TILE(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define TILES_2 TILE(0), TILE(1)
#define TILES_3 TILES_2, TILE(2)
#define TILES_4 TILES_3, TILE(3)
#define TILES_5 TILES_4, TILE(4)
#define TILES_6 TILES_5, TILE(5)
#define TILES_8 TILES_6, TILE(6), TILE(7)
#define TILES_9 TILES_8, TILE(8)
#define TILES_10 TILES_9, TILE(9)
#define WGMMA_OF(n, columns, cells, at) \
    if constexpr (tiles == n) \
        asm volatile( \
            "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.f16.f16 {" SUMS_##n "}, {" cells \
            "}, " at ", 1, 1, 1, 0;" \
            : TILES_##n \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));

// d += a b.
template <int tiles>
DEVICE void wgmma(float (&d)[tiles][4], const u32 (&a)[4], const void* from) {
    const u64 b = wgmma_descriptor(from);
    WGMMA_OF(2, 16, "%8, %9, %10, %11", "%12")
    else WGMMA_OF(3, 24, "%12, %13, %14, %15", "%16")
    else WGMMA_OF(4, 32, "%16, %17, %18, %19", "%20")
    else WGMMA_OF(5, 40, "%20, %21, %22, %23", "%24")
    else WGMMA_OF(6, 48, "%24, %25, %26, %27", "%28")
    else WGMMA_OF(8, 64, "%32, %33, %34, %35", "%36")
    else WGMMA_OF(9, 72, "%36, %37, %38, %39", "%40")
    else WGMMA_OF(10, 80, "%40, %41, %42, %43", "%44")
    else static_assert(tiles == 0, "wgmma: no instruction for this many tiles");
}
#endif
#endif  // NEOCOG_WGMMA_CUH
