/* The CUDA words of a kernel, in fiber mode: kernel.h includes this in place of nvcc's own. One dimension of threads and
 * blocks; what is not here does not compile.
 *
 * An access of a shared array goes through a stand-in for the element, which tells the runtime; &array[i] and array + i give
 * a stand-in for the pointer. Places come from default arguments, which take the line of the caller. */
#ifndef LS_GPU_VGPU_FIBER_DEVICE_H
#define LS_GPU_VGPU_FIBER_DEVICE_H

#include <string.h>

#include <type_traits>

#include "gpu/vgpu/fiber/runtime.h"

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))

/* gpu/kernels/kernel.h says what these are. */
#define LS_SHARED(T, name, count)  static ls_fiber_shared<T, count> name(#name)
#define LS_SHARED_DYNAMIC(T, name) ls_fiber_pointer<T> name = ls_fiber_dynamic_pointer<T>()
#define LS_START(kernel, blocks, shared_bytes, stream, ...) \
    ls_fiber_start(#kernel, kernel, blocks, shared_bytes, stream, __VA_ARGS__)
#define ls_block_threads ls_fiber_block_threads()

namespace {

inline ls_fiber_place ls_fiber_here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
}

/* An index and where it was written. */
struct ls_fiber_at {
    size_t index;
    ls_fiber_place place;
    ls_fiber_at(size_t i, ls_fiber_place here = ls_fiber_here()) : index(i), place(here) {
    }
};

template <typename T> class ls_fiber_element;

template <typename T> class ls_fiber_pointer {
  public:
    ls_fiber_pointer(ls_fiber_array *a, size_t i, ls_fiber_place p) : array(a), index(i), place(p) {
    }
    ls_fiber_element<T> operator[](ls_fiber_at at) const {
        return ls_fiber_element<T>(ls_fiber_pointer(array, index + at.index, at.place));
    }
    ls_fiber_element<T> operator*() const {
        return ls_fiber_element<T>(*this);
    }
    ls_fiber_pointer operator+(ls_fiber_at at) const {
        return ls_fiber_pointer(array, index + at.index, at.place);
    }

    ls_fiber_array *array;
    size_t index;
    ls_fiber_place place;
};

template <typename T> class ls_fiber_element {
    static_assert(std::is_trivially_copyable<T>::value, "shared memory holds plain values");

  public:
    explicit ls_fiber_element(ls_fiber_pointer<T> p) : at(p) {
    }
    operator T() const {
        T value;
        ls_fiber_load(at.array, at.index, &value, at.place);
        return value;
    }
    T operator=(T value) const {
        ls_fiber_store(at.array, at.index, &value, at.place);
        return value;
    }
    T operator=(const ls_fiber_element &other) const {
        return *this = static_cast<T>(other);
    }
    T operator+=(T value) const {
        return *this = static_cast<T>(*this) + value;
    }
    T operator-=(T value) const {
        return *this = static_cast<T>(*this) - value;
    }
    T operator*=(T value) const {
        return *this = static_cast<T>(*this) * value;
    }
    ls_fiber_pointer<T> operator&() const {
        return at;
    }

  private:
    ls_fiber_pointer<T> at;
};

/* A static object, so it starts as zeros; each block counts as the first to touch it. */
template <typename T, size_t N> class ls_fiber_shared {
  public:
    explicit constexpr ls_fiber_shared(const char *name) : cells{}, bytes{}, array{name, sizeof(T), N, bytes, cells} {
    }
    ls_fiber_element<T> operator[](ls_fiber_at at) {
        return ls_fiber_element<T>(ls_fiber_pointer<T>(&array, at.index, at.place));
    }
    ls_fiber_pointer<T> operator+(ls_fiber_at at) {
        return ls_fiber_pointer<T>(&array, at.index, at.place);
    }

  private:
    ls_fiber_cell cells[N];
    alignas(16) unsigned char bytes[N * sizeof(T)];
    ls_fiber_array array;
};

template <typename T> ls_fiber_pointer<T> ls_fiber_dynamic_pointer(ls_fiber_place here = ls_fiber_here()) {
    return ls_fiber_pointer<T>(ls_fiber_dynamic(sizeof(T), here), 0, here);
}

inline void __syncthreads(ls_fiber_place here = ls_fiber_here()) {
    ls_fiber_barrier(here);
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, ls_fiber_place here = ls_fiber_here()) {
    ls_fiber_warp(LS_FIBER_SYNCWARP, mask, 0, 0, 32, here);
}

template <typename T>
T ls_fiber_shuffle(ls_fiber_operation operation, unsigned mask, T value, int argument, int width, ls_fiber_place here) {
    static_assert(std::is_trivially_copyable<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "as the device's shuffles");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = ls_fiber_warp(operation, mask, bits, argument, width, here);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, ls_fiber_place here = ls_fiber_here()) {
    return ls_fiber_shuffle(LS_FIBER_SHFL, mask, value, lane, width, here);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, ls_fiber_place here = ls_fiber_here()) {
    return ls_fiber_shuffle(LS_FIBER_SHFL_UP, mask, value, static_cast<int>(delta), width, here);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, ls_fiber_place here = ls_fiber_here()) {
    return ls_fiber_shuffle(LS_FIBER_SHFL_DOWN, mask, value, static_cast<int>(delta), width, here);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, ls_fiber_place here = ls_fiber_here()) {
    return ls_fiber_shuffle(LS_FIBER_SHFL_XOR, mask, value, lanes, width, here);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, ls_fiber_place here = ls_fiber_here()) {
    return static_cast<unsigned>(ls_fiber_warp(LS_FIBER_BALLOT, mask, predicate != 0 ? 1 : 0, 0, 32, here));
}

inline int __any_sync(unsigned mask, int predicate, ls_fiber_place here = ls_fiber_here()) {
    return static_cast<int>(ls_fiber_warp(LS_FIBER_ANY, mask, predicate != 0 ? 1 : 0, 0, 32, here));
}

inline int __all_sync(unsigned mask, int predicate, ls_fiber_place here = ls_fiber_here()) {
    return static_cast<int>(ls_fiber_warp(LS_FIBER_ALL, mask, predicate != 0 ? 1 : 0, 0, 32, here));
}

/* One thread runs at a time, so plain operations are atomic; on shared memory the runtime hears of them. */
template <typename T> T *ls_fiber_target(T *address) {
    return address;
}

template <typename T> T *ls_fiber_target(ls_fiber_pointer<T> address) {
    return static_cast<T *>(ls_fiber_atomic(address.array, address.index, address.place));
}

template <typename P, typename V, typename F> V ls_fiber_update(P address, V value, F next) {
    auto *target = ls_fiber_target(address);
    if (target == nullptr) {
        return value;
    }
    V old = *target;
    *target = next(old, value);
    return old;
}

template <typename P, typename V> V atomicAdd(P address, V value) {
    return ls_fiber_update(address, value, [](V old, V given) { return old + given; });
}

template <typename P, typename V> V atomicMax(P address, V value) {
    return ls_fiber_update(address, value, [](V old, V given) { return old > given ? old : given; });
}

template <typename P, typename V> V atomicExch(P address, V value) {
    return ls_fiber_update(address, value, [](V, V given) { return given; });
}

template <typename P, typename V> V atomicCAS(P address, V expected, V value) {
    return ls_fiber_update(address, value, [expected](V old, V given) { return old == expected ? given : old; });
}

/* A launch: at once, whatever the stream. */
template <typename... P, typename... A>
cudaError_t ls_fiber_start(const char *name, void (*kernel)(P...), unsigned blocks, size_t dynamic_bytes,
                           cudaStream_t stream, A... arguments) {
    (void)stream;
    auto call = [&] { kernel(static_cast<P>(arguments)...); };
    return ls_fiber_launch(
        name, blocks, dynamic_bytes, [](void *given) { (*static_cast<decltype(call) *>(given))(); }, &call);
}

} // namespace

#endif
