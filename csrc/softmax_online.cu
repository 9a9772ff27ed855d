#include "kernels/softmax_online.cuh"
#include "launchers.h"

// The instance is the one that `online_plan` in cuda_impl/softmax_plan.py asks for.
cudaError_t softmax_online(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                           int threads, cudaStream_t stream) {
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kThreads = 512;
    if (threads != kThreads) return kNoInstance;
    const auto kernel = softmax_online_kernel<T, kThreads>;
    const cudaError_t set = prefer_l1(kernel);
    if (set != cudaSuccess) return set;
    kernel<<<grid_of(rows), kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out),
                                                   rows, cols);
    return cudaGetLastError();
  });
}
