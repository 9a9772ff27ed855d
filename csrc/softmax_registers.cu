#include "kernels/softmax_registers.cuh"
#include "launchers.h"

namespace {

template <typename T, int kThreads, int kElements, bool kWhole>
cudaError_t launch_registers(const void* x, void* out, int64_t rows, int64_t cols,
                             cudaStream_t stream) {
  constexpr int kBlock = kBlockOf<kThreads, kElements>;
  constexpr int kRows = kBlock / kThreads;
  const dim3 grid = grid_of((rows + kRows - 1) / kRows);
  const auto kernel = softmax_registers_kernel<T, kThreads, kElements, kWhole>;
  const cudaError_t set = prefer_l1(kernel);
  if (set != cudaSuccess) return set;
  kernel<<<grid, kBlock, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), rows,
                                      static_cast<int>(cols));
  return cudaGetLastError();
}

template <typename T, int kThreads, int kElements, int kCluster, bool kWhole>
cudaError_t launch_cluster(const void* x, void* out, int64_t rows, int64_t cols,
                           cudaStream_t stream) {
  // The cluster's size is the kernel's own attribute; the grid is a multiple of it.
  const dim3 grid = grid_of(rows * kCluster);
  const auto kernel = softmax_cluster_kernel<T, kThreads, kElements, kCluster, kWhole>;
  cudaError_t set = prefer_l1(kernel);
  // Eight blocks are what every device with clusters has.
  if (set == cudaSuccess && kCluster > 8) {
    set = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  if (set != cudaSuccess) return set;
  kernel<<<grid, kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), rows,
                                        static_cast<int>(cols));
  return cudaGetLastError();
}

// Threads in each of some blocks that share a row, and the elements that each of them holds.
template <int kThreads, int kBlocks, int kElements>
struct Sharing {
  template <typename T, bool kWhole>
  static cudaError_t launch(const void* x, void* out, int64_t rows, int64_t cols,
                            cudaStream_t stream) {
    // A row that starts anywhere is counted from a boundary before it. What the threads can't hold
    // of it would be left out without a word.
    constexpr int kSize = Pack<T>::kSize;
    constexpr int kBefore = kWhole ? 0 : kBoundaryOf<kThreads> / static_cast<int>(sizeof(T)) - 1;
    const int64_t slots = (kBefore + cols + kSize - 1) / kSize * kSize;
    if (slots > int64_t{kThreads} * kBlocks * kElements) return kNoInstance;
    if constexpr (kElements > kMostFloats && sizeof(T) == 4)
      return kNoInstance;
    else if constexpr (kBlocks > 1)
      return launch_cluster<T, kThreads, kElements, kBlocks, kWhole>(x, out, rows, cols, stream);
    else
      return launch_registers<T, kThreads, kElements, kWhole>(x, out, rows, cols, stream);
  }
};

// Calls launch(the one of kSharings that is asked for). None is: kNoInstance.
template <int... kThreads, int... kBlocks, int... kElements, typename Launch>
cudaError_t with_sharing(int threads, int blocks, int elements, Launch launch,
                         Sharing<kThreads, kBlocks, kElements>... sharings) {
  cudaError_t status = kNoInstance;
  ((threads == kThreads && blocks == kBlocks && elements == kElements &&
    (status = launch(sharings), true)) ||
   ...);
  return status;
}

}  // namespace

// The instances below are those that `registers_plan` in cuda_impl/softmax_plan.py asks for.
cudaError_t softmax_registers(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                              int threads, int elements, int cluster, bool whole,
                              cudaStream_t stream) {
  if (elements == 0) return softmax_online(x, out, rows, cols, dtype, threads, stream);
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return with_bool(whole, [&](auto kWhole) {
      const auto launch = [&](auto sharing) {
        return sharing.template launch<T, kWhole>(x, out, rows, cols, stream);
      };
      return with_sharing(threads, cluster, elements, launch,
                          // A group of lanes a row, then a block.
                          Sharing<4, 1, 8>(), Sharing<8, 1, 8>(), Sharing<16, 1, 8>(),
                          Sharing<16, 1, 16>(), Sharing<32, 1, 16>(), Sharing<32, 1, 24>(),
                          Sharing<32, 1, 32>(), Sharing<64, 1, 24>(), Sharing<64, 1, 32>(),
                          Sharing<128, 1, 24>(), Sharing<128, 1, 32>(), Sharing<256, 1, 24>(),
                          Sharing<256, 1, 32>(), Sharing<512, 1, 24>(), Sharing<512, 1, 32>(),
                          Sharing<1024, 1, 24>(), Sharing<1024, 1, 32>(),
                          // A cluster.
                          Sharing<128, 2, 24>(), Sharing<128, 2, 32>(), Sharing<1024, 2, 24>(),
                          Sharing<1024, 2, 32>(), Sharing<512, 8, 24>(), Sharing<512, 8, 32>(),
                          Sharing<512, 16, 24>(), Sharing<512, 16, 32>(),
                          // 16-bit rows that are kept as they were loaded.
                          Sharing<256, 2, 48>(), Sharing<256, 2, 56>(), Sharing<256, 2, 64>(),
                          Sharing<256, 4, 48>(), Sharing<256, 4, 56>(), Sharing<256, 4, 64>(),
                          Sharing<256, 8, 48>(), Sharing<256, 8, 56>(), Sharing<256, 8, 64>(),
                          Sharing<256, 16, 48>(), Sharing<256, 16, 56>(), Sharing<256, 16, 64>(),
                          // Few rows.
                          Sharing<128, 1, 8>(), Sharing<256, 1, 8>(), Sharing<512, 1, 8>(),
                          Sharing<1024, 1, 8>(), Sharing<512, 4, 8>(), Sharing<512, 8, 8>(),
                          Sharing<512, 4, 16>(), Sharing<512, 8, 16>(), Sharing<512, 4, 32>());
    });
  });
}
