#include "kernels/matmul_mma.cuh"
#include "matmul_launchers.h"

namespace {

template <int kTileM, int kTileN, int kDepth, int kStages, int kWarpsM, int kWarpsN, int kResident>
struct Plan {};

struct Call {
  const void* a;
  const void* b;
  void* out;
  int64_t m, n, k, a_stride, b_stride;
  bool weight;
  DType dtype;
  int tile_m, tile_n, depth, stages, warps_m, warps_n, resident;
  cudaStream_t stream;
};

// Whether the call asks for this plan; then `status` is what its launch returned.
template <int kTileM, int kTileN, int kDepth, int kStages, int kWarpsM, int kWarpsN, int kResident>
bool launch(const Call& call, Plan<kTileM, kTileN, kDepth, kStages, kWarpsM, kWarpsN, kResident>,
            cudaError_t& status) {
  if (call.tile_m != kTileM || call.tile_n != kTileN || call.depth != kDepth ||
      call.stages != kStages || call.warps_m != kWarpsM || call.warps_n != kWarpsN ||
      call.resident != kResident) {
    return false;
  }
  status = with_dtype(call.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      return with_bool(call.weight, [&](auto kWeight) {
        using Shared = MmaShared<kTileM, kTileN, kDepth, kStages, kWarpsM, kWarpsN>;
        const auto kernel = matmul_mma_kernel<T, kTileM, kTileN, kDepth, kStages, kWarpsM, kWarpsN,
                                              kResident, kWeight>;
        const cudaError_t set =
            set_once(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shared::kBytes);
        if (set != cudaSuccess) return set;
        const int64_t tiles = (call.m + kTileM - 1) / kTileM * ((call.n + kTileN - 1) / kTileN);
        kernel<<<grid_of(tiles), Shared::kThreads, Shared::kBytes, call.stream>>>(
            static_cast<const T*>(call.a), static_cast<const T*>(call.b), static_cast<T*>(call.out),
            call.m, call.n, call.k, call.a_stride, call.b_stride);
        return cudaGetLastError();
      });
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

// The instances below are those of MMA_PLANS in cuda_impl/mma.py.
cudaError_t matmul_mma(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                       int64_t a_stride, int64_t b_stride, bool weight, DType dtype, int tile_m,
                       int tile_n, int depth, int stages, int warps_m, int warps_n, int resident,
                       cudaStream_t stream) {
  const Call call{a,     b,      out,    m,     n,      k,       a_stride, b_stride, weight,
                  dtype, tile_m, tile_n, depth, stages, warps_m, warps_n,  resident, stream};
  return launch_one_of<Plan<128, 256, 32, 4, 2, 4, 1>, Plan<128, 128, 32, 4, 2, 2, 2>,
                       Plan<64, 64, 64, 4, 2, 2, 3>>(call);
}
