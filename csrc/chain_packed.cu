#include "kernels/chain_packed.cuh"
#include "launchers.h"

namespace {

template <typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
cudaError_t launch(const void* x, const void* residual, const void* bias, void* out, int64_t count,
                   int64_t cols, uint64_t reciprocal, int64_t stride, cudaStream_t stream) {
  constexpr int kSize = Pack<T>::kSize;
  // The kernel that goes by rows has kPacks of them under each thread, the last ones perhaps
  // partly.
  const int64_t rows = count / cols;
  const int64_t packs = kBiasPacks ? (rows + kPacks - 1) / kPacks * (cols / kSize)
                                   : (count + kPacks * kSize - 1) / (kPacks * kSize);
  const dim3 grid = grid_of((packs + kThreads - 1) / kThreads);
  chain_packed_kernel<T, kThreads, kPacks, kVector, kBiasPacks><<<grid, kThreads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<const T*>(bias),
      static_cast<T*>(out), count, cols, reciprocal, stride);
  return cudaGetLastError();
}

}  // namespace

cudaError_t chain_packed(const void* x, const void* residual, const void* bias, void* out,
                         int64_t count, int64_t cols, DType dtype, int threads, int packs,
                         bool vector, bool bias_packs, uint64_t reciprocal, int64_t stride,
                         cudaStream_t stream) {
  // The kernel that goes by rows counts within its rows in 32 bits.
  if (bias_packs && (!vector || cols >= int64_t{1} << 28)) return kNoInstance;
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return with_one_of<128>(threads, [&](auto kThreads) {
      if (bias_packs) {
        return with_one_of<2, 4>(packs, [&](auto kPacks) {
          return launch<T, kThreads, kPacks, true, true>(x, residual, bias, out, count, cols,
                                                         reciprocal, stride, stream);
        });
      }
      return with_one_of<2>(packs, [&](auto kPacks) {
        return with_bool(vector, [&](auto kVector) {
          return launch<T, kThreads, kPacks, kVector, false>(x, residual, bias, out, count, cols,
                                                             reciprocal, stride, stream);
        });
      });
    });
  });
}
