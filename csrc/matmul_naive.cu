#include "kernels/matmul_naive.cuh"
#include "matmul_launchers.h"

cudaError_t matmul_naive(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                         int64_t a_row, int64_t b_row, int64_t b_col, DType dtype, int threads,
                         cudaStream_t stream) {
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const dim3 grid = grid_of((m * n + threads - 1) / threads);
    matmul_naive_kernel<T>
        <<<grid, threads, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b),
                                       static_cast<T*>(out), m, n, k, a_row, b_row, b_col);
    return cudaGetLastError();
  });
}
