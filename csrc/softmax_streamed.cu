#include "kernels/softmax_streamed.cuh"
#include "launchers.h"

namespace {

struct Rows {
  const void* x;
  void* out;
  int64_t rows;
  int cols;
  int turns;
};

template <typename T, int kThreads, int kElements, int kDepth, int kCluster, bool kWhole>
cudaError_t launch(const Rows& given, cudaStream_t stream) {
  constexpr int kBlock = kStreamBlockOf<kThreads>;
  constexpr int kBytes = kStreamBytes<T, kThreads, kElements, kDepth>;
  const int64_t rows_a_block = int64_t{kBlock / kThreads} * given.turns;
  // The cluster's size is the kernel's own attribute; the grid is a multiple of it.
  const dim3 grid = grid_of((given.rows + rows_a_block - 1) / rows_a_block * kCluster);
  const auto kernel = [] {
    if constexpr (kCluster > 1) {
      return softmax_streamed_cluster_kernel<T, kThreads, kElements, kDepth, kCluster, kWhole>;
    } else {
      return softmax_streamed_kernel<T, kThreads, kElements, kDepth, kWhole>;
    }
  }();
  if (kBytes > 48 * 1024) {
    const cudaError_t set =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    if (set != cudaSuccess) return set;
  }
  kernel<<<grid, kBlock, kBytes, stream>>>(static_cast<const T*>(given.x),
                                           static_cast<T*>(given.out), given.rows, given.cols,
                                           given.turns);
  return cudaGetLastError();
}

// As many rows on their way as an SM's blocks have 192 KB for, and no more than four.
template <typename T, int kThreads, int kElements>
constexpr int depth_of() {
  constexpr int kRow = kStreamResident<kThreads> * kStreamBytes<T, kThreads, kElements, 1>;
  return kRow * 4 < 192 * 1024 ? 4 : 192 * 1024 / kRow;
}

template <typename T, int kThreads, int kElements, int kCluster, bool kWhole>
cudaError_t launch_at(const Rows& given, int depth, cudaStream_t stream) {
  constexpr int kDepth = depth_of<T, kThreads, kElements>();
  if (depth != kDepth) return kNoInstance;
  return launch<T, kThreads, kElements, kDepth, kCluster, kWhole>(given, stream);
}

}  // namespace

// The instances above are those that `streamed_plan` in cuda_impl/softmax_plan.py asks for.
cudaError_t softmax_streamed(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                             int threads, int elements, int depth, int cluster, bool whole,
                             int turns, cudaStream_t stream) {
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kSize = Pack<T>::kSize;
    // What the threads can't hold would be left out without a word. See softmax_registers.cu.
    const int64_t slots = whole ? cols : (cols + 2 * (kSize - 1)) / kSize * kSize;
    if (slots > int64_t{threads} * elements * cluster) return kNoInstance;
    if (turns < 1 || turns > 65535) return kNoInstance;
    const Rows given{x, out, rows, static_cast<int>(cols), turns};
    return with_bool(whole, [&](auto kWhole) {
      if (threads == 512) {
        return with_one_of<48, 64>(elements, [&](auto kElements) {
          return with_one_of<1, 2, 4, 8>(cluster, [&](auto kCluster) {
            return launch_at<T, 512, kElements, kCluster, kWhole>(given, depth, stream);
          });
        });
      }
      if constexpr (sizeof(T) == 2) {
        if (cluster > 1) return kNoInstance;
        if (threads == 8 && elements == 16) {
          return launch_at<T, 8, 16, 1, kWhole>(given, depth, stream);
        }
        return with_one_of<8, 16, 32>(threads, [&](auto kThreads) {
          return with_one_of<24, 32>(elements, [&](auto kElements) {
            return launch_at<T, kThreads, kElements, 1, kWhole>(given, depth, stream);
          });
        });
      }
      return kNoInstance;
    });
  });
}
