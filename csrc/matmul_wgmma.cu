#include <cuda.h>
#include <cudaTypedefs.h>

#include "kernels/matmul_wgmma.cuh"
#include "matmul_launchers.h"

namespace {

// A function of the driver, looked up at run time: the library then loads where no driver is.
PFN_cuTensorMapEncodeTiled_v12000 find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// data: [rows, cols] of 16-bit elements, rows `stride` elements apart, in boxes of box_rows x 64.
// Encoded for every call: it costs less than a microsecond, and no cache can go stale.
cudaError_t encode(TensorMap* map, DType dtype, const void* data, int64_t rows, int64_t cols,
                   int64_t stride, int box_rows) {
  static const PFN_cuTensorMapEncodeTiled_v12000 function = find_encode();
  if (function == nullptr) return cudaErrorCallRequiresNewerDriver;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
  static_assert(alignof(TensorMap) >= alignof(CUtensorMap));
  const CUresult status = function(
      reinterpret_cast<CUtensorMap*>(map),
      dtype == DType::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      2, const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

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
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shared::kBytes);
  if (set != cudaSuccess) return set;
  TensorMap map_a{}, map_b{}, map_out{};
  cudaError_t status = encode(&map_a, dtype, a, m, k, a_stride, kTileM);
  if (status != cudaSuccess) return status;
  status = weight ? encode(&map_b, dtype, b, n, k, b_stride, kTileN / kCluster)
                  : encode(&map_b, dtype, b, k, n, b_stride, Shared::kDepth);
  if (status != cudaSuccess) return status;
  if (bulk) status = encode(&map_out, dtype, out, m, n, n, 64);
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
