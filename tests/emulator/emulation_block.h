// What a kernel asks of the block of CUDA threads that runs it; emulation_block.cpp is compiled once
// for all kernels.
#ifndef NEOCOG_EMULATION_BLOCK_H
#define NEOCOG_EMULATION_BLOCK_H

struct uint3 { u32 x, y, z; };
struct dim3 {
    u32 x = 1, y = 1, z = 1;
};
extern __thread uint3 threadIdx, blockIdx;
extern __thread dim3 blockDim, gridDim;

namespace emulation {
extern __thread u8* shared_memory;  // the dynamic part

// A place in the kernel's source where a thread waits.
struct Site {
    const char* what;
    const char* file;
    int line;
    bool operator==(const Site& o) const { return line == o.line && !strcmp(file, o.file); }
};

// What a collective does with the operands of its lanes once all have come.
typedef void (*Operation)(u32 mask, void* const* operands);

// Wait for all threads.
void barrier(const Site& site);
// Wait for the lanes of `mask`; `operation` is run once, on all their operands.
void collective(u32 mask, void* operand, Operation operation, const Site& site);
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Asynchronous copies: they happen at the wait and not before.
void copy_late(void* to, const void* from, u32 bytes);
void commit_copies();
void wait_for_copies(u32 pending);

// Run a whole grid (see NEOCOG_EXPORT); 0, or 1 with a message.
int launch(const char* kernel, void (*body)(void* const* args), void* const* args, const u32* grid,
           const u32* plan, u64 seed, char* message, u32 size);
}  // namespace emulation

#endif  // NEOCOG_EMULATION_BLOCK_H
