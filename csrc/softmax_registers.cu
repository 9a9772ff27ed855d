#include "launchers.h"

// softmax_registers.h, in objects of their own.
template <typename T>
cudaError_t softmax_registers_of(const void* x, void* out, int64_t rows, int64_t cols, int threads,
                                 int elements, int cluster, bool whole, cudaStream_t stream);

cudaError_t softmax_registers(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                              int threads, int elements, int cluster, bool whole,
                              cudaStream_t stream) {
  if (elements == 0) return softmax_online(x, out, rows, cols, dtype, threads, stream);
  return with_dtype(dtype, [&](auto tag) {
    return softmax_registers_of<typename decltype(tag)::Type>(x, out, rows, cols, threads, elements,
                                                              cluster, whole, stream);
  });
}
