// Wide matrix products of a warpgroup: 64 rows by 32 to 256 columns, A and B straight from
// shared memory. Needs sm_90a; under emulation the products happen as late as they may, at the wait.
//
// Where an operand lies: 8 rows (A) or columns (B) of 16 bytes follow one another, 128 bytes; the
// next 16 bytes of depth are `depth` bytes away, the next 8 rows `rows` bytes.
#ifndef NEOCOG_WGMMA_WIDE_CUH
#define NEOCOG_WGMMA_WIDE_CUH
#include "wgmma.cuh"

#ifdef NEOCOG_EMULATED
#include <vector>

struct matrix_t {
    const u8* at;
    u32 depth, rows;
};
DEVICE matrix_t matrix_of(const void* at, u32 depth, u32 rows) {
    return {(const u8*)at, depth, rows};
}
DEVICE matrix_t further(matrix_t m, u32 bytes) { return {m.at + bytes, m.depth, m.rows}; }

namespace emulation {
struct Wide {
    void (*multiply)(const Wide&);
    float* d;
    u32 a[4];
    matrix_t from, b;  // from: A in shared memory
    bool add;
    u32 group;
};
struct Queue {
    std::vector<Wide> products;
    u32 group = 0;
};
static thread_local Queue queues[1024];  // by thread of the block
inline Queue& queue() { return queues[threadIdx.x]; }

template <int tiles>
inline void multiply_wide(const Wide& w) {
    const u32 lane = threadIdx.x % 32;
    for (int n = 0; n < tiles; n++) {
        float(&d)[4] = *(float(*)[4])(w.d + 4 * n);
        if (!w.add) d[0] = d[1] = d[2] = d[3] = 0.0f;
        const u8* at = w.b.at + n * w.b.rows + lane / 4 * 16 + lane % 4 * 4;
        const u32 b0 = *(const u32*)at, b1 = *(const u32*)(at + w.b.depth);
#if MODE == 3
        mma_tf32(d, w.a, b0, b1);
#else
        mma_half(d, w.a, b0, b1);
#endif
    }
}
}  // namespace emulation
// A is read when the product happens.
template <int tiles>
DEVICE void multiply_shared(float (&d)[tiles][4], matrix_t a, matrix_t b, bool add) {
    auto multiply = [](const emulation::Wide& held) {
        const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, depth = held.from.depth;
        const u8* at = held.from.at + warp * 2 * held.from.rows + lane / 4 * 16 + lane % 4 * 4;
        emulation::Wide now = held;
        now.a[0] = *(const u32*)at, now.a[1] = *(const u32*)(at + held.from.rows);
        at += depth;
        now.a[2] = *(const u32*)at, now.a[3] = *(const u32*)(at + held.from.rows);
        emulation::multiply_wide<tiles>(now);
    };
    emulation::Queue& q = emulation::queue();
    q.products.push_back({multiply, &d[0][0], {}, a, b, add, q.group});
}
DEVICE void products_commit() { ++emulation::queue().group; }
template <int pending>
DEVICE void products_wait() {
    emulation::Queue& q = emulation::queue();
    size_t done = 0;
    for (; done < q.products.size(); ++done) {
        if (q.products[done].group + pending >= q.group) break;
        q.products[done].multiply(q.products[done]);
    }
    q.products.erase(q.products.begin(), q.products.begin() + (long)done);
    asm volatile("" ::: "memory");
}
template <int tiles>
DEVICE void products_visible(float (&)[tiles][4]) {}
#elif WGMMA

typedef u64 matrix_t;
DEVICE matrix_t matrix_of(const void* at, u32 depth, u32 rows) {
    const u32 address = (u32)__cvta_generic_to_shared(at);
    return (u64)((address & 0x3ffffu) >> 4) | (u64)(depth >> 4) << 16 | (u64)(rows >> 4) << 32;
}
DEVICE matrix_t further(matrix_t m, u32 bytes) { return m + (bytes >> 4); }
DEVICE void products_commit() { wgmma_commit(); }
template <int pending>
DEVICE void products_wait() { wgmma_wait<pending>(); }
// Keeps the compiler from using sums before the wait in front of this.
template <int tiles>
DEVICE void products_visible(float (&d)[tiles][4]) {
    UNROLL for (int n = 0; n < tiles; n++)
        asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}

// names of the sums, beyond those of wgmma.cuh
#define SUMS_16 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
    "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SUMS_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
    "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, " \
    "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, " \
    "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, " \
    "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, " \
    "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TILE_4(n) TILE(n), TILE(n + 1), TILE(n + 2), TILE(n + 3)
#define TILE_8(n) TILE_4(n), TILE_4(n + 4)
#define TILES_16 TILES_8, TILE_8(8)
#define TILES_32 TILES_16, TILE_8(16), TILE_8(24)
#define WIDE(tiles, columns, types, a, b, add, more, ...) \
    asm volatile( \
        "{ .reg .pred p; setp.ne.b32 p, %" #add ", 0; wgmma.mma_async.sync.aligned.m64n" #columns \
        types " {" SUMS_##tiles "}, " a ", %" #b ", p, 1, 1" more "; }" \
        : TILES_##tiles \
        : __VA_ARGS__)
#define WIDE_BY_MODE(tiles, columns, a, b, add, half, ...) \
    if constexpr (MODE == 3) \
        WIDE(tiles, columns, "k8.f32.tf32.tf32", a, b, add, "", __VA_ARGS__); \
    else \
        WIDE(tiles, columns, "k16.f32.f16.f16", a, b, add, half, __VA_ARGS__);

// d = a b, or with `add` d += a b, as MODE says of halves or TF32.
template <int tiles>
DEVICE void multiply_shared(float (&d)[tiles][4], matrix_t a, matrix_t b, bool add) {
    const u32 p = add;
#define A_SHARED "l"(a), "l"(b), "r"(p)
    if constexpr (tiles == 4) {
        WIDE_BY_MODE(4, 32, "%16", 17, 18, ", 0, 0", A_SHARED)
    }
    else if constexpr (tiles == 8) {
        WIDE_BY_MODE(8, 64, "%32", 33, 34, ", 0, 0", A_SHARED)
    }
    else if constexpr (tiles == 16) {
        WIDE_BY_MODE(16, 128, "%64", 65, 66, ", 0, 0", A_SHARED)
    }
    else if constexpr (tiles == 32) {
        WIDE_BY_MODE(32, 256, "%128", 129, 130, ", 0, 0", A_SHARED)
    }
    else
        static_assert(tiles == 0, "no instruction for this many tiles");
}
#endif
#endif  // NEOCOG_WGMMA_WIDE_CUH
