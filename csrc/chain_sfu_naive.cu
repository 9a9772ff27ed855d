#include "kernels/chain_sfu_naive.cuh"
#include "launchers.h"

cudaError_t chain_sfu_naive(const void* x, const void* residual, const void* bias, void* out,
                            int64_t count, int64_t cols, DType dtype, int threads,
                            cudaStream_t stream) {
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const dim3 grid = grid_of((count + threads - 1) / threads);
    chain_sfu_naive_kernel<T><<<grid, threads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<const T*>(bias),
        static_cast<T*>(out), count, cols);
    return cudaGetLastError();
  });
}
