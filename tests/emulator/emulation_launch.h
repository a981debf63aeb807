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

}  // namespace emulation

// grid: blocks in x, y, z; plan: threads, bytes of dynamic shared memory, workers, order.
#define NEOCOG_EXPORT(name)                                                                       \
    extern "C" __attribute__((visibility("default"))) void emulated_arguments(char* out) {        \
        emulation::Exported<name>::arguments(out);                                                \
    }                                                                                             \
    extern "C" __attribute__((visibility("default"))) int emulated_launch(                        \
        void* const* args, const u32* grid, const u32* plan, u64 seed, char* message, u32 size) { \
        return emulation::launch(#name, emulation::Exported<name>::body, args, grid, plan, seed,  \
                                 message, size);                                                  \
    }

#endif  // NEOCOG_EMULATION_LAUNCH_H
