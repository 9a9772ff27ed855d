#include "kernels/chain_streamed.cuh"
#include "launchers.h"

// The instance is the one that `streamed_plan` in cuda_impl/chain.py asks for.
cudaError_t chain_streamed(const void* x, const void* residual, const void* bias, void* out,
                           int64_t rows, int64_t cols, DType dtype, int threads, int depth,
                           int resident, int groups, cudaStream_t stream) {
  constexpr int kThreads = 128, kDepth = 4, kResident = 1280;
  if (threads != kThreads || depth != kDepth || resident != kResident) return kNoInstance;
  if (groups < 1 || groups > 65535) return kNoInstance;
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kColumns = kThreads * Pack<T>::kSize;
    const dim3 grid(static_cast<unsigned>((cols + kColumns - 1) / kColumns),
                    static_cast<unsigned>(groups));
    chain_streamed_kernel<T, kThreads, kDepth, kResident><<<grid, kThreads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<const T*>(bias),
        static_cast<T*>(out), rows, cols);
    return cudaGetLastError();
  });
}
