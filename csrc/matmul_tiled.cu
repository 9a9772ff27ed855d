#include "kernels/matmul_tiled.cuh"
#include "matmul_launchers.h"

cudaError_t matmul_tiled(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                         int64_t a_stride, int64_t b_stride, bool weight, DType dtype, int tile,
                         cudaStream_t stream) {
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return with_bool(weight, [&](auto kWeight) {
      return with_one_of<64, 128>(tile, [&](auto kTile) {
        const dim3 grid = grid_of((m + kTile - 1) / kTile * ((n + kTile - 1) / kTile));
        matmul_tiled_kernel<T, kTile, kWeight>
            <<<grid, kTiledThreads, 0, stream>>>(static_cast<const T*>(a), static_cast<const T*>(b),
                                                 static_cast<T*>(out), m, n, k, a_stride, b_stride);
        return cudaGetLastError();
      });
    });
  });
}
