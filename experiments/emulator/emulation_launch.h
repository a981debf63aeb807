// Launching a kernel with the interface that a foreign caller sees: NEOCOG_EXPORT(name) makes the two
// functions emulated_launch and emulated_arguments for one kernel. Included by emulation.h.
#ifndef NEOCOG_EMULATION_LAUNCH_H
#define NEOCOG_EMULATION_LAUNCH_H

namespace emulation {
// One word for each argument: r or w for a pointer that is read or written, then the kind and the
// bytes of the value: f4, i4, u1; v for structures and void.
template <class T>
inline void describe(char*& out) {
    typedef typename std::remove_pointer<T>::type Value;
    typedef typename std::remove_cv<Value>::type Plain;
    if (std::is_pointer<T>::value) *out++ = std::is_const<Value>::value ? 'r' : 'w';
    *out++ = std::is_floating_point<Plain>::value                               ? 'f'
             : std::is_class<Plain>::value || std::is_void<Plain>::value        ? 'v'
             : std::is_signed<Plain>::value                                     ? 'i'
                                                                                : 'u';
    typedef typename std::conditional<std::is_void<Plain>::value, u8, Plain>::type Sized;
    out += sprintf(out, "%zu ", sizeof(Sized));
}

template <auto kernel>
struct Exported;
template <class... Args, void (*kernel)(Args...)>
struct Exported<kernel> {
    template <size_t... index>
    static void unpack(void* const* args, std::index_sequence<index...>) {
        kernel(*(typename std::remove_cv<Args>::type*)args[index]...);
    }
    static void body(void* const* args) { unpack(args, std::index_sequence_for<Args...>()); }
    static void arguments(char* out) {
        (describe<typename std::remove_cv<Args>::type>(out), ...);
        *out = 0;
    }
};

inline void work(Launch* launch) {
    u32 blocks = launch->grid.x * launch->grid.y * launch->grid.z;
    std::unique_ptr<Block> block(new Block(*launch));
    while (!launch->failed) {
        u32 index = launch->next_block++;
        if (index >= blocks || !block->run(index)) break;
    }
}

// Run a whole grid on `workers` threads of the CPU; 0, or 1 with a message.
inline int run(Launch& launch, u32 workers) {
    u32 blocks = launch.grid.x * launch.grid.y * launch.grid.z;
    std::vector<std::thread> others;
    for (u32 i = 1; i < workers && i < blocks; ++i) others.emplace_back(work, &launch);
    work(&launch);
    for (std::thread& other : others) other.join();
    return launch.failed;
}
}  // namespace emulation

// -- what the compiler's checks of addresses and indices call (-fsanitize=alignment,bounds) ------------
namespace emulation {
struct Checked {  // the head of what the checks pass
    const char* file;
    u32 line, column;
};
}  // namespace emulation
extern "C" inline __attribute__((used)) void __ubsan_handle_type_mismatch_v1(void* data,
                                                                            void* address) {
    const emulation::Checked& at = *(const emulation::Checked*)data;
    emulation::here->fail("%s:%u: address %p is not aligned for its type", at.file, at.line, address);
}
extern "C" inline __attribute__((used)) void __ubsan_handle_out_of_bounds(void* data, void* index) {
    const emulation::Checked& at = *(const emulation::Checked*)data;
    emulation::here->fail("%s:%u: index %td is outside the array", at.file, at.line, (ptrdiff_t)index);
}

// grid: blocks in x, y, z; plan: threads, bytes of dynamic shared memory, workers, order.
#define NEOCOG_EXPORT(name)                                                                       \
    extern "C" __attribute__((visibility("default"))) void emulated_arguments(char* out) {        \
        emulation::Exported<name>::arguments(out);                                                \
    }                                                                                             \
    extern "C" __attribute__((visibility("default"))) int emulated_launch(                        \
        void* const* args, const u32* grid, const u32* plan, u64 seed, char* message, u32 size) { \
        emulation::Launch launch{#name, emulation::Exported<name>::body, args};                   \
        launch.grid = {grid[0], grid[1], grid[2]};                                                \
        launch.threads = plan[0];                                                                 \
        launch.shared = plan[1];                                                                  \
        launch.order = (emulation::Order)plan[3];                                                 \
        launch.seed = seed;                                                                       \
        launch.message = message;                                                                 \
        launch.message_size = size;                                                               \
        return emulation::run(launch, plan[2]);                                                   \
    }

#endif  // NEOCOG_EMULATION_LAUNCH_H
