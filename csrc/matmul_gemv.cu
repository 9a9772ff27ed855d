#include "kernels/matmul_gemv.cuh"
#include "matmul_launchers.h"

// The instances below are those that `gemv_plan` in cuda_impl/gemv.py asks for.
cudaError_t matmul_gemv(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                        int64_t a_stride, int64_t b_stride, DType dtype, int threads, int batch,
                        bool vector, cudaStream_t stream) {
  const int64_t blocks = (n + kGemvRows - 1) / kGemvRows;
  // What registers can't hold, or the grid can't count, would be left out without a word.
  if (m > batch || k >= int64_t{1} << 30 || blocks >= int64_t{1} << 31) return kNoInstance;
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      return with_one_of<64, 256>(threads, [&](auto kThreads) {
        return with_one_of<1, 2, 4>(batch, [&](auto kBatch) {
          return with_bool(vector, [&](auto kVector) {
            matmul_gemv_kernel<T, kThreads, kBatch, kVector>
                <<<static_cast<unsigned>(blocks), int{kThreads}, 0, stream>>>(
                    static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out),
                    static_cast<int>(m), n, static_cast<int>(k), a_stride, b_stride);
            return cudaGetLastError();
          });
        });
      });
    } else {
      return kNoInstance;
    }
  });
}
