#include "kernels/matmul_skinny.cuh"
#include "matmul_launchers.h"
#include "tensor_map.h"

namespace {

template <int kRows, int kBatch, int kStages, int kSplits>
struct Plan {};

struct Call {
  const void* a;
  const void* b;
  void* out;
  int64_t m, n, k, a_stride, b_stride;
  DType dtype;
  int rows, batch, stages, splits;
  cudaStream_t stream;
};

// Whether the call asks for this plan; then `status` is what its launch returned.
template <int kRows, int kBatch, int kStages, int kSplits>
bool launch(const Call& call, Plan<kRows, kBatch, kStages, kSplits>, cudaError_t& status) {
  if (call.rows != kRows || call.batch != kBatch || call.stages != kStages ||
      call.splits != kSplits) {
    return false;
  }
  status = with_dtype(call.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      using Shared = SkinnyShared<kRows, kBatch, kStages, kSplits>;
      const auto kernel = matmul_skinny_kernel<T, kRows, kBatch, kStages, kSplits>;
      // Before the maps are encoded: on a thread's first call it also binds the device's context,
      // which the driver's function asks for.
      cudaError_t failed =
          set_once(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shared::kBytes);
      if (failed != cudaSuccess) return failed;
      TensorMap map_a{}, map_weight{};
      failed = encode_tensor_map(&map_a, call.dtype, call.a, call.m, call.k, call.a_stride, kBatch);
      if (failed != cudaSuccess) return failed;
      failed =
          encode_tensor_map(&map_weight, call.dtype, call.b, call.n, call.k, call.b_stride, kRows);
      if (failed != cudaSuccess) return failed;
      // The cluster's size is the kernel's own attribute; the grid is a multiple of it.
      const auto blocks = static_cast<unsigned>((call.n + kRows - 1) / kRows * kSplits);
      kernel<<<blocks, Shared::kThreads, Shared::kBytes, call.stream>>>(
          map_a, map_weight, static_cast<T*>(call.out), static_cast<int>(call.m),
          static_cast<int>(call.n), static_cast<int>(call.k));
      return cudaGetLastError();
    } else {
      return kNoInstance;
    }
  });
  return true;
}

template <typename... Plans>
cudaError_t launch_one_of(const Call& call) {
  cudaError_t status = kNoInstance;
  (launch(call, Plans{}, status) || ...);
  return status;
}

}  // namespace

// The instances below are those of SKINNY_PLANS in cuda_impl/skinny.py.
cudaError_t matmul_skinny(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                          int64_t a_stride, int64_t b_stride, DType dtype, int rows, int batch,
                          int stages, int splits, cudaStream_t stream) {
  // Rows that a plan can't hold would be left out without a word.
  if (m > batch) return kNoInstance;
  const Call call{a,        b,     out,  m,     n,      k,      a_stride,
                  b_stride, dtype, rows, batch, stages, splits, stream};
  return launch_one_of<Plan<128, 16, 6, 1>, Plan<64, 16, 6, 2>, Plan<128, 32, 5, 1>,
                       Plan<64, 32, 7, 2>, Plan<128, 64, 4, 1>, Plan<64, 64, 5, 2>>(call);
}
