// One block of CUDA threads on one thread of the CPU: a fiber for each CUDA thread. Compiled once
// and linked to every kernel.
//
// A fiber runs until it has to wait (a barrier, a collective of its warp) and then hands over to the
// next one that can run. Nothing runs at the same time inside a block, so every run is alike; the
// order is the launch's choice (forward, reversed, shuffled), and what a kernel leaves to chance by
// a missing barrier gives a wrong result at once. Kernels that cannot go on (threads that have left,
// threads that wait at different places) end the launch with a message.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "platform.cuh"

__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;

namespace emulation {
__thread u8* shared_memory;

namespace {
constexpr u32 STACK = 128 << 10;         // bytes of a fiber's stack
constexpr u32 PAGE = 4 << 10;
constexpr u32 GUARD = 4 << 10;           // bytes watched before and behind dynamic shared memory
constexpr u16 POISON = 0x7fe1;           // a NaN as half, as bfloat16, and twice as float
constexpr u8 UNTOUCHED = 0xa5;

enum Order : u32 { FORWARD, REVERSED, SHUFFLED };

struct Launch {
    const char* kernel;
    void (*body)(void* const* args);
    void* const* args;
    dim3 grid;
    u32 threads, shared;
    Order order;
    u64 seed;
    char* message;  // of the first failure
    size_t message_size;
    std::atomic<u32> next_block{0};
    std::atomic<bool> failed{false};
    std::mutex reporting;
};

// An asynchronous copy of 16 bytes that has not happened yet.
struct Copy {
    void* to;
    const void* from;
    u32 group;
    u32 bytes;
};

enum State : u8 { RUNNABLE, AT_BARRIER, AT_COLLECTIVE, LEFT };

struct Fiber {
    jmp_buf context;
    u32 thread;
    State state;
    Site site;        // where it waits
    u32 mask;         // lanes that must take part in the collective
    void* operand;    // of the collective
    u32 group;        // of asynchronous copies, the one still open
    std::vector<Copy> copies;
};

class Block {
  public:
    explicit Block(Launch& launch);
    ~Block() { munmap(stacks_, stacks_size_); }
    Block(const Block&) = delete;

    // Run one block of the grid; false once the launch has failed.
    bool run(u32 index);

    Fiber& self() { return *running_; }

    // Wait for all threads.
    void barrier(const Site& site);
    // Wait for the lanes of `mask`; `operation` is run once, on all their operands.
    void collective(u32 mask, void* operand, Operation operation, const Site& site);
    [[noreturn]] void fail(const char* format, va_list rest);

  private:
    void create_fibers();
    static void fiber_main();
    void arrange(u32 index);
    void poison();
    bool untouched(const u8* begin) const;
    __attribute__((noinline)) void yield();
    [[noreturn]] void next();
    [[noreturn]] void deadlock();
    bool has_come(const Fiber& waiting, u32 thread) const;
    void release(Fiber& fiber) {
        fiber.state = RUNNABLE;
        ready_[ready_in_++ % ready_.size()] = &fiber;
    }

    Launch& launch_;
    std::vector<Fiber> fibers_;
    std::vector<u32> order_;      // of all threads
    std::vector<u32> in_warp_;    // the same order, warp by warp
    std::vector<u32> suspect_;    // by warp: the lane that was missing when last looked at
    std::vector<Fiber*> ready_;   // a ring
    size_t ready_in_ = 0, ready_out_ = 0;
    Fiber* running_ = nullptr;
    u32 left_ = 0;
    u32 at_barrier_ = 0;
    Site barrier_site_{};
    std::vector<u8> memory_;      // guard, dynamic shared memory, guard
    u8* shared_;
    u8* stacks_;
    size_t stacks_size_;
    ucontext_t origin_;
    jmp_buf home_;
};

__thread Block* here;

Block::Block(Launch& launch)
    : launch_(launch),
      fibers_(launch.threads),
      order_(launch.threads),
      in_warp_(launch.threads),
      suspect_((launch.threads + 31) / 32),
      ready_(launch.threads),
      memory_(2 * GUARD + launch.shared + 128) {
    uintptr_t at = (uintptr_t)memory_.data() + GUARD;
    shared_ = (u8*)((at + 127) / 128 * 128);
    stacks_size_ = (size_t)launch.threads * (STACK + PAGE);
    stacks_ = (u8*)mmap(nullptr, stacks_size_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    here = this;
    shared_memory = shared_;
    create_fibers();
}

void Block::create_fibers() {
    for (u32 i = 0; i < launch_.threads; ++i) {
        u8* stack = stacks_ + (size_t)i * (STACK + PAGE);
        mprotect(stack, PAGE, PROT_NONE);  // an overflow stops here
        running_ = &fibers_[i];
        running_->thread = i;
        ucontext_t start;
        getcontext(&start);
        start.uc_stack.ss_sp = stack + PAGE;
        start.uc_stack.ss_size = STACK - i % 16 * 256;  // tops of stacks in different cache sets
        start.uc_link = nullptr;
        makecontext(&start, &Block::fiber_main, 0);
        swapcontext(&origin_, &start);
    }
}

// A fiber's life: it reports at once, then runs the kernel each time it is woken for a new block.
void Block::fiber_main() {
    Block* const block = here;
    Fiber* const fiber = block->running_;
    if (_setjmp(fiber->context) == 0) setcontext(&block->origin_);
    for (;;) {
        block->launch_.body(block->launch_.args);
        fiber->state = LEFT;
        ++block->left_;
        block->yield();
    }
}

void Block::yield() {
    asm volatile("" ::: "memory");
    if (_setjmp(running_->context) == 0) next();
    asm volatile("" ::: "memory");
}

void Block::next() {
    if (ready_out_ == ready_in_) {
        if (left_ == launch_.threads) _longjmp(home_, 1);
        deadlock();
    }
    running_ = ready_[ready_out_++ % ready_.size()];
    threadIdx = {running_->thread, 0, 0};
    _longjmp(running_->context, 1);
}

void Block::barrier(const Site& site) {
    if (at_barrier_ == 0)
        barrier_site_ = site;
    else if (!(barrier_site_ == site))
        emulation::fail("waits at %s (%s:%d), other threads at %s (%s:%d)", site.what, site.file,
                        site.line, barrier_site_.what, barrier_site_.file, barrier_site_.line);
    running_->state = AT_BARRIER;
    running_->site = site;
    if (++at_barrier_ == launch_.threads) {
        at_barrier_ = 0;
        for (u32 thread : order_) release(fibers_[thread]);
    }
    yield();
}

bool Block::has_come(const Fiber& waiting, u32 thread) const {
    if (thread >= launch_.threads) return false;
    const Fiber& other = fibers_[thread];
    return other.state == AT_COLLECTIVE && other.mask == waiting.mask && other.site == waiting.site;
}

void Block::collective(u32 mask, void* operand, Operation operation, const Site& site) {
    Fiber& me = *running_;
    u32 first = me.thread / 32 * 32, warp = me.thread / 32;
    if (!(mask >> (me.thread - first) & 1))
        emulation::fail("%s (%s:%d): the mask %08x lacks the calling lane", site.what, site.file,
                        site.line, mask);
    me.state = AT_COLLECTIVE;
    me.site = site;
    me.mask = mask;
    me.operand = operand;
    u32 lane = suspect_[warp];
    for (u32 i = 0; i < 32; ++i, lane = (lane + 1) % 32) {
        if (mask >> lane & 1 && !has_come(me, first + lane)) {
            suspect_[warp] = lane;
            yield();
            return;
        }
    }
    void* operands[32];
    for (u32 i = 0; i < 32; ++i) operands[i] = mask >> i & 1 ? fibers_[first + i].operand : nullptr;
    operation(mask, operands);
    u32 last = first + 32 < launch_.threads ? first + 32 : launch_.threads;
    for (u32 i = first; i < last; ++i)
        if (mask >> (in_warp_[i] - first) & 1) release(fibers_[in_warp_[i]]);
    yield();
}

void Block::fail(const char* format, va_list rest) {
    launch_.reporting.lock();  // no guard object: longjmp skips destructors
    if (!launch_.failed.exchange(true)) {
        int used = snprintf(launch_.message, launch_.message_size,
                            "kernel %s, block (%u, %u, %u), thread %u: ", launch_.kernel, blockIdx.x,
                            blockIdx.y, blockIdx.z, running_->thread);
        if (used > 0 && (size_t)used < launch_.message_size)
            vsnprintf(launch_.message + used, launch_.message_size - used, format, rest);
    }
    launch_.reporting.unlock();
    _longjmp(home_, 1);
}

// No thread can run and some wait: name one of them and one that it waits for in vain.
void Block::deadlock() {
    for (State state : {AT_COLLECTIVE, AT_BARRIER}) {
        for (Fiber& fiber : fibers_) {
            if (fiber.state != state) continue;
            u32 first = state == AT_BARRIER ? 0 : fiber.thread / 32 * 32;
            u32 count = state == AT_BARRIER ? launch_.threads : 32;
            u32 missing = first;
            while (missing < first + count &&
                   (state == AT_BARRIER ? fibers_[missing].state == AT_BARRIER
                                        : !(fiber.mask >> (missing - first) & 1) ||
                                              has_come(fiber, missing)))
                ++missing;
            const Site& site = fiber.site;
            running_ = &fiber;
            if (missing >= launch_.threads)
                emulation::fail("waits at %s (%s:%d) for lane %u, which the block does not have",
                                site.what, site.file, site.line, missing - first);
            const Fiber& other = fibers_[missing];
            if (other.state == LEFT)
                emulation::fail("waits at %s (%s:%d) for thread %u, which has left the kernel",
                                site.what, site.file, site.line, missing);
            emulation::fail("waits at %s (%s:%d, mask %08x) for thread %u, which waits at %s (%s:%d, "
                            "mask %08x)", site.what, site.file, site.line, fiber.mask, missing,
                            other.site.what, other.site.file, other.site.line, other.mask);
        }
    }
    emulation::fail("no thread can run");
}

void Block::arrange(u32 index) {
    u32 n = launch_.threads;
    for (u32 i = 0; i < n; ++i) order_[i] = launch_.order == REVERSED ? n - 1 - i : i;
    u64 state = launch_.seed + index * 0x9e3779b97f4a7c15ull;
    for (u32 i = n; launch_.order == SHUFFLED && i > 1; --i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        std::swap(order_[i - 1], order_[(state >> 33) % i]);
    }
    std::vector<u32> filled(suspect_.size());
    for (u32 thread : order_) in_warp_[thread / 32 * 32 + filled[thread / 32]++] = thread;
}

void Block::poison() {
    memset(memory_.data(), UNTOUCHED, memory_.size());
    for (u32 i = 0; i < launch_.shared; ++i) shared_[i] = (u8)(POISON >> i % 2 * 8);
}

bool Block::untouched(const u8* begin) const {
    for (u32 i = 0; i < GUARD; ++i)
        if (begin[i] != UNTOUCHED) return false;
    return true;
}

bool Block::run(u32 index) {
    if (launch_.order == REVERSED)
        index = launch_.grid.x * launch_.grid.y * launch_.grid.z - 1 - index;
    blockIdx = {index % launch_.grid.x, index / launch_.grid.x % launch_.grid.y,
                index / launch_.grid.x / launch_.grid.y};
    blockDim = {launch_.threads, 1, 1};
    gridDim = launch_.grid;
    arrange(index);
    poison();
    ready_in_ = ready_out_ = left_ = at_barrier_ = 0;
    for (Fiber& fiber : fibers_) {
        fiber.copies.clear();
        fiber.group = 0;
    }
    for (u32 thread : order_) release(fibers_[thread]);
    if (_setjmp(home_) == 0) next();
    if (launch_.failed) return false;
    if (!untouched(shared_ + launch_.shared) || !untouched(shared_ - GUARD)) {
        if (_setjmp(home_) == 0)
            emulation::fail("the block wrote outside its %u bytes of dynamic shared memory",
                            launch_.shared);
        return false;
    }
    return true;
}

void work(Launch* launch) {
    u32 blocks = launch->grid.x * launch->grid.y * launch->grid.z;
    std::unique_ptr<Block> block(new Block(*launch));
    while (!launch->failed) {
        u32 index = launch->next_block++;
        if (index >= blocks || !block->run(index)) break;
    }
}

}  // namespace

void barrier(const Site& site) { here->barrier(site); }
void collective(u32 mask, void* operand, Operation operation, const Site& site) {
    here->collective(mask, operand, operation, site);
}
void fail(const char* format, ...) {
    va_list rest;
    va_start(rest, format);
    here->fail(format, rest);
}

void copy_late(void* to, const void* from, u32 bytes) {
    Fiber& fiber = here->self();
    fiber.copies.push_back({to, from, fiber.group, bytes});
}
void commit_copies() { ++here->self().group; }
void wait_for_copies(u32 pending) {
    Fiber& fiber = here->self();
    size_t done = 0;
    for (; done < fiber.copies.size(); ++done) {
        const Copy& copy = fiber.copies[done];
        if (copy.group + pending >= fiber.group) break;
        memcpy(copy.to, copy.from, copy.bytes);
    }
    fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + (long)done);
}

int launch(const char* kernel, void (*body)(void* const* args), void* const* args, const u32* grid,
           const u32* plan, u64 seed, char* message, u32 size) {
    Launch launch{kernel, body, args};
    launch.grid = {grid[0], grid[1], grid[2]};
    launch.threads = plan[0];
    launch.shared = plan[1];
    launch.order = (Order)plan[3];
    launch.seed = seed;
    launch.message = message;
    launch.message_size = size;
    u32 blocks = grid[0] * grid[1] * grid[2];
    std::vector<std::thread> others;
    for (u32 i = 1; i < plan[2] && i < blocks; ++i) others.emplace_back(work, &launch);
    work(&launch);
    for (std::thread& other : others) other.join();
    return launch.failed;
}
}  // namespace emulation

// -- what the compiler's checks of addresses and indices call (-fsanitize=alignment,bounds) ------------
namespace emulation {
namespace {
struct Checked {  // the head of what the checks pass
    const char* file;
    u32 line, column;
};
}  // namespace
}  // namespace emulation
extern "C" void __ubsan_handle_type_mismatch_v1(void* data, void* address) {
    const emulation::Checked& at = *(const emulation::Checked*)data;
    emulation::fail("%s:%u: address %p is not aligned for its type", at.file, at.line, address);
}
extern "C" void __ubsan_handle_out_of_bounds(void* data, void* index) {
    const emulation::Checked& at = *(const emulation::Checked*)data;
    emulation::fail("%s:%u: index %td is outside the array", at.file, at.line, (ptrdiff_t)index);
}
