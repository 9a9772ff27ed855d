#include "kernels/softmax_naive.cuh"
#include "launchers.h"

cudaError_t softmax_naive(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                          int threads, cudaStream_t stream) {
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const dim3 grid = grid_of((rows + threads - 1) / threads);
    const auto kernel = softmax_naive_kernel<T>;
    const cudaError_t set = prefer_l1(kernel);
    if (set != cudaSuccess) return set;
    kernel<<<grid, threads, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), rows,
                                         cols);
    return cudaGetLastError();
  });
}
