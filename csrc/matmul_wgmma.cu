#include "kernels/matmul_wgmma.cuh"
#include "matmul_launchers.h"
#include "tensor_map.h"

namespace {

template <typename T, int kTileM, int kTileN, int kStages, int kCluster>
cudaError_t launch(const void* a, const void* b, T* out, int64_t m, int64_t n, int64_t k,
                   int64_t a_stride, int64_t b_stride, bool weight, DType dtype, int blocks,
                   bool bulk, cudaStream_t stream) {
  using Shared = WgmmaShared<kTileM, kTileN, kStages>;
  const auto kernel = weight ? matmul_wgmma_kernel<T, kTileM, kTileN, kStages, kCluster, true>
                             : matmul_wgmma_kernel<T, kTileM, kTileN, kStages, kCluster, false>;
  // Before the maps are encoded: on a thread's first call it also binds the device's context, which
  // the driver's function asks for.
  const cudaError_t set =
      set_once(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shared::kBytes);
  if (set != cudaSuccess) return set;
  TensorMap map_a{}, map_b{}, map_out{};
  cudaError_t status = encode_tensor_map(&map_a, dtype, a, m, k, a_stride, kTileM);
  if (status != cudaSuccess) return status;
  status = weight ? encode_tensor_map(&map_b, dtype, b, n, k, b_stride, kTileN / kCluster)
                  : encode_tensor_map(&map_b, dtype, b, k, n, b_stride, Shared::kDepth);
  if (status != cudaSuccess) return status;
  if (bulk) status = encode_tensor_map(&map_out, dtype, out, m, n, n, 64);
  if (status != cudaSuccess) return status;
  kernel<<<blocks, Shared::kThreads, Shared::kBytes, stream>>>(
      map_a, map_b, map_out, out, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k),
      bulk);
  return cudaGetLastError();
}

}  // namespace

// The instances below are those that `wgmma_plan` in cuda_impl/matmul.py asks for.
cudaError_t matmul_wgmma(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                         int64_t a_stride, int64_t b_stride, bool weight, DType dtype, int tile_m,
                         int tile_n, int stages, int cluster, int blocks, bool bulk,
                         cudaStream_t stream) {
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      if (tile_m == 128 && tile_n == 256 && stages == 4 && cluster == 2 && blocks % 2 == 0) {
        return launch<T, 128, 256, 4, 2>(a, b, static_cast<T*>(out), m, n, k, a_stride, b_stride,
                                         weight, dtype, blocks, bulk, stream);
      }
      if (tile_m == 64 && tile_n == 64 && stages == 6 && cluster == 1) {
        return launch<T, 64, 64, 6, 1>(a, b, static_cast<T*>(out), m, n, k, a_stride, b_stride,
                                       weight, dtype, blocks, bulk, stream);
      }
    }
    return kNoInstance;
  });
}
