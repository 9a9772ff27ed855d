#include "kernels/matmul_gemv.cuh"
#include "matmul_launchers.h"

// The instances below are those that `gemv_plan` in cuda_impl/decode.py asks for.
cudaError_t matmul_gemv(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                        int64_t a_stride, int64_t b_stride, DType dtype, int batch, int split,
                        int blocks, int64_t tiles, bool vector, cudaStream_t stream) {
  // What a tile or a step can't hold would be left out without a word.
  if (m > batch || n > tiles * kGemvRows) return kNoInstance;
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      return with_one_of<1, 2, 4>(batch, [&](auto kBatch) {
        return with_one_of<1, 8>(split, [&](auto kSplit) {
          return with_bool(vector, [&](auto kVector) {
            matmul_gemv_kernel<T, kBatch, kSplit, kVector><<<blocks, kGemvThreads, 0, stream>>>(
                static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out),
                static_cast<int>(m), n, k, a_stride, b_stride, tiles, n / tiles, n % tiles);
            return cudaGetLastError();
          });
        });
      });
    } else {
      return kNoInstance;
    }
  });
}
