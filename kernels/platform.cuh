// What every kernel includes: types, PTX behind functions, shared memory. Under NEOCOG_EMULATED the
// same names come from emulation.h and a plain C++ compiler builds the kernels for the CPU.
//
// No CUDA toolkit header is needed: NVRTC alone compiles every kernel.
#ifndef NEOCOG_PLATFORM_CUH
#define NEOCOG_PLATFORM_CUH

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef NEOCOG_EMULATED
#include "emulation.h"
#else

#define DEVICE __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
// Dynamic shared memory; its bytes are given at the launch.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) u8 name[]
#define UNROLL _Pragma("unroll")
#define UNROLL_BY(n) PRAGMA(unroll n)
#define PRAGMA(text) _Pragma(#text)
#define NO_UNROLL _Pragma("unroll 1")

// -- half, two to a register: the lower half holds the first value --------------------------------
DEVICE u32 half2_of(float first, float second) {
    u32 r;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(second), "f"(first));
#else
    asm("{ .reg .f16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b}; }"
        : "=r"(r) : "f"(first), "f"(second));
#endif
    return r;
}
DEVICE float2 floats_of_half2(u32 pair) {
    float2 r;
    asm("{ .reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; }"
        : "=f"(r.x), "=f"(r.y) : "r"(pair));
    return r;
}
DEVICE u16 half_of(float value) {
    u16 r;
    asm("{ .reg .f16 a; cvt.rn.f16.f32 a, %1; mov.b16 %0, a; }" : "=h"(r) : "f"(value));
    return r;
}
DEVICE float float_of_half(u16 value) {
    float r;
    asm("{ .reg .f16 a; mov.b16 a, %1; cvt.f32.f16 %0, a; }" : "=f"(r) : "h"(value));
    return r;
}
DEVICE u32 tf32_of(float value) {
    u32 r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(value));
    return r;
}

// -- quick and within 2 ulp ----------------------------------------------------------------------
DEVICE float reciprocal_of(float value) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(value));
    return r;
}
DEVICE float sqrt_of(float value) {
    float r;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(value));
    return r;
}

// -- matrix products of one warp (fragments as the PTX manual lays them out) ---------------------
DEVICE void mma_half(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {  // m16n8k16
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void mma_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {  // m16n8k8
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four 8x8 matrices of 16-bit values; lane i names the 16 bytes of row i % 8 of matrix i / 8.
DEVICE void load_matrix_x4(u32 (&r)[4], const void* row) {
    u32 address = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}
// The same, each matrix transposed: lane i then holds column i / 4, rows 2 (i % 4) and the next.
DEVICE void load_matrix_x4_transposed(u32 (&r)[4], const void* row) {
    u32 address = (u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}
// One 8x8 matrix of 16-bit values, in the lanes as ldmatrix gives it, transposed.
DEVICE u32 transpose_matrix(u32 pair) {
    u32 r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(pair));
    return r;
}

// -- asynchronous copies of 16 or 4 bytes from global to shared memory ---------------------------
DEVICE void copy_async_16(void* shared, const void* global) {
    u32 address = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global));
}
// The same, or 16 bytes of 0.
DEVICE void copy_async_16_or_0(void* shared, const void* global, bool given) {
    u32 address = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
                 "r"(given ? 16 : 0));
}
DEVICE void copy_async_4(void* shared, const void* global) {
    u32 address = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(global));
}
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;"); }
template <int pending>
DEVICE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(pending)); }

// -- the launch before this one in a graph: wait for its results; let the next one start. LATE: only
// -- at this one's end, where the next one's blocks would take room from its own -----------------
DEVICE void wait_for_previous() {
#if defined(PROGRAMMATIC) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void start_next() {
#if defined(PROGRAMMATIC) && !defined(LATE) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// -- clusters: blocks that read each other's shared memory ----------------------------------------
#if __CUDA_ARCH__ >= 900
DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// The same, not waiting for what was written.
DEVICE void cluster_wait() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// What lies at this place in another block's shared memory.
DEVICE const float* in_block(const float* own, int rank) {
    const float* r;
    asm("mapa.u64 %0, %1, %2;" : "=l"(r) : "l"(own), "r"(rank));
    return r;
}
#endif
#endif  // NEOCOG_EMULATED

// -- the type of the maps between layers: MAP is 0 float, 1 half ----------------------------------
#ifndef MAP
#define MAP 0
#endif
#if MAP == 0
typedef float map_t;
DEVICE float of_map(map_t value) { return value; }
DEVICE map_t to_map(float value) { return value; }
#elif MAP == 1
typedef u16 map_t;
DEVICE float of_map(map_t value) { return float_of_half(value); }
DEVICE map_t to_map(float value) { return half_of(value); }
#endif

// Response of an S-cell: excitation e = sum a' u, inhibition v (see s_constants in model.py).
DEVICE float s_response(float e, float v, float theta, float silence) {
    return fmaxf(e - theta * v, 0.0f) * reciprocal_of(v + silence);
}

#endif  // NEOCOG_PLATFORM_CUH
