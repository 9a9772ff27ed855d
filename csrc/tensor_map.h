// Tensor maps for the launchers: what tells the tensor memory accelerator how a matrix lies in
// memory.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include "kernels/hopper.cuh"
#include "launch.h"

// A function of the driver, looked up at run time: the library then loads where no driver is.
inline PFN_cuTensorMapEncodeTiled_v12000 find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// data: [rows, cols] of 16-bit elements, rows `stride` elements apart, in boxes of box_rows x 64.
// Encoded for every call: it costs less than a microsecond, and no cache can go stale.
inline cudaError_t encode_tensor_map(TensorMap* map, DType dtype, const void* data, int64_t rows,
                                     int64_t cols, int64_t stride, int box_rows) {
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
