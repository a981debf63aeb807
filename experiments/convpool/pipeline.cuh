// Warps with different work in one block: barriers in shared memory (mbarrier), copies that a barrier
// counts (cp.async.bulk). Needs sm_90.
#ifndef NEOCOG_PIPELINE_CUH
#define NEOCOG_PIPELINE_CUH
#include "platform.cuh"

#ifdef NEOCOG_EMULATED
#include <vector>

// A barrier: arrivals wanted and still missing, bytes still missing, phases gone by.
struct barrier_t {
    u16 wanted, missing;
    int bytes;
    u32 phase, pad;
};
namespace emulation {
struct Bulk {
    void* to;
    const void* from;
    u32 bytes;
    barrier_t* counted;
};
static thread_local std::vector<Bulk> bulks;  // copies on their way
inline void turn(barrier_t* b) {
    if (b->missing == 0 && b->bytes == 0) b->missing = b->wanted, ++b->phase;
}
inline bool passed(barrier_t* b, u32 parity) {
    return (b->phase & 1) != parity;
}
// Copies happen when somebody waits for them and not before.
inline void deliver(barrier_t* b) {
    for (size_t i = 0; i < bulks.size();) {
        if (bulks[i].counted != b) {
            ++i;
            continue;
        }
        memcpy(bulks[i].to, bulks[i].from, bulks[i].bytes);
        b->bytes -= (int)bulks[i].bytes;
        bulks.erase(bulks.begin() + (long)i);
        turn(b);
    }
}
}  // namespace emulation
DEVICE void barrier_init(barrier_t* b, u32 arrivals) {
    *b = {(u16)arrivals, (u16)arrivals, 0, 0, 0};
    emulation::bulks.clear();
}
DEVICE void barriers_ready() {}
DEVICE void barrier_arrive(barrier_t* b) {
    if (b->missing == 0) emulation::fail("more arrivals at a barrier than it waits for");
    --b->missing;
    emulation::turn(b);
}
DEVICE void barrier_expect(barrier_t* b, u32 bytes) {
    b->bytes += (int)bytes;
    barrier_arrive(b);
}
// All lanes of a warp wait together.
DEVICE void barrier_wait(barrier_t* b, u32 parity, NEOCOG_CALLER) {
    for (u32 turns = 0; !__all_sync(~0u, emulation::passed(b, parity), file, line); ++turns) {
        emulation::deliver(b);
        if (turns > 100000)
            emulation::fail("waits in vain at barrier_wait (%s:%d)", file, line);
    }
}
DEVICE void bulk_copy(void* shared, const void* global, u32 bytes, barrier_t* b, NEOCOG_CALLER) {
    emulation::Site site{"bulk_copy", file, line};
    emulation::need_aligned("target", shared, 16, site);
    emulation::need_aligned("source", global, 16, site);
    if (bytes % 16) emulation::fail("bulk_copy (%s:%d): %u bytes", file, line, bytes);
    emulation::bulks.push_back({shared, global, bytes, b});
}
#elif __CUDA_ARCH__ >= 900

typedef u64 barrier_t;
DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void barrier_init(barrier_t* b, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals)
                 : "memory");
}
// After the last barrier_init, before the block's first __syncthreads.
DEVICE void barriers_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void barrier_arrive(barrier_t* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// Arrive, and make the barrier wait for so many bytes of bulk_copy too.
DEVICE void barrier_expect(barrier_t* b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
                 "r"(bytes)
                 : "memory");
}
// Until the phase of that parity is over; all lanes of a warp wait together.
DEVICE void barrier_wait(barrier_t* b, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n"
        "}" ::"r"(shared_address(b)),
        "r"(parity)
        : "memory");
}
// One thread copies; bytes and addresses are multiples of 16.
DEVICE void bulk_copy(void* shared, const void* global, u32 bytes, barrier_t* b) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(b))
        : "memory");
}
#endif
#endif  // NEOCOG_PIPELINE_CUH
