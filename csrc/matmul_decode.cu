#include "kernels/matmul_decode.cuh"
#include "matmul_launchers.h"

namespace {

template <int kRows, int kBatch, int kStages, int kSplits>
struct Tile {};

struct Call {
  const void* a;
  const void* b;
  void* out;
  int64_t m, n, k, a_stride, b_stride;
  DType dtype;
  int rows, batch, stages, splits, blocks;
  int64_t tiles;
  bool vector;
  cudaStream_t stream;
};

// Whether the call asks for this tile; then `status` is what its launch returned.
template <int kRows, int kBatch, int kStages, int kSplits>
bool launch(const Call& call, Tile<kRows, kBatch, kStages, kSplits>, cudaError_t& status) {
  if (call.rows != kRows || call.batch != kBatch || call.stages != kStages ||
      call.splits != kSplits) {
    return false;
  }
  status = with_dtype(call.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (sizeof(T) == 2) {
      return with_bool(call.vector, [&](auto kVector) {
        constexpr int kBytes = DecodeShared<kRows, kBatch, kStages>::kBytes;
        const auto kernel = matmul_decode_kernel<T, kRows, kBatch, kStages, kSplits, kVector>;
        const cudaError_t set =
            set_once(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
        if (set != cudaSuccess) return set;
        // The cluster's size is the kernel's own attribute; the grid is a multiple of it.
        kernel<<<call.blocks, kDecodeThreads, kBytes, call.stream>>>(
            static_cast<const T*>(call.a), static_cast<const T*>(call.b), static_cast<T*>(call.out),
            static_cast<int>(call.m), call.n, call.k, call.a_stride, call.b_stride, call.tiles,
            call.n / call.tiles, call.n % call.tiles);
        return cudaGetLastError();
      });
    } else {
      return kNoInstance;
    }
  });
  return true;
}

template <typename... Tiles>
cudaError_t launch_one_of(const Call& call) {
  cudaError_t status = kNoInstance;
  (launch(call, Tiles{}, status) || ...);
  return status;
}

}  // namespace

// The instances below are those of TILES in cuda_impl/decode.py.
cudaError_t matmul_decode(const void* a, const void* b, void* out, int64_t m, int64_t n, int64_t k,
                          int64_t a_stride, int64_t b_stride, DType dtype, int rows, int batch,
                          int stages, int splits, int blocks, int64_t tiles, bool vector,
                          cudaStream_t stream) {
  // What a tile can't hold would be left out without a word.
  if (m > batch || n > tiles * rows || splits < 1 || blocks % splits != 0) return kNoInstance;
  const Call call{a,    b,     out,    m,      n,      k,     a_stride, b_stride, dtype,
                  rows, batch, stages, splits, blocks, tiles, vector,   stream};
  return launch_one_of<Tile<32, 8, 5, 1>, Tile<32, 16, 8, 1>, Tile<64, 16, 9, 1>,
                       Tile<64, 32, 7, 2>, Tile<128, 32, 9, 1>, Tile<64, 64, 4, 2>,
                       Tile<128, 64, 6, 2>, Tile<128, 64, 6, 1>>(call);
}
