// The launches of softmax_registers.cuh, for one element type an object: a type's kernels take a
// compiler a minute, and three compilers work side by side.
#pragma once

#include "kernels/softmax_registers.cuh"
#include "launchers.h"

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
    set = set_once(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  if (set != cudaSuccess) return set;
  kernel<<<grid, kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), rows,
                                        static_cast<int>(cols));
  return cudaGetLastError();
}

// Threads in each of some blocks that share a row, and the elements that each of them holds.
template <int kThreads, int kBlocks, int kElements>
struct Sharing {
  static constexpr int threads = kThreads, blocks = kBlocks, elements = kElements;

  template <typename T, bool kWhole>
  static cudaError_t launch(const void* x, void* out, int64_t rows, int64_t cols,
                            cudaStream_t stream) {
    // A row that starts anywhere is counted from a boundary before it. What the threads can't hold
    // of it would be left out without a word.
    constexpr int kSize = Pack<T>::kSize;
    constexpr int kBefore = kWhole ? 0 : kBoundaryOf<kThreads> / static_cast<int>(sizeof(T)) - 1;
    const int64_t slots = (kBefore + cols + kSize - 1) / kSize * kSize;
    if (slots > int64_t{kThreads} * kBlocks * kElements) return kNoInstance;
    if constexpr (kBlocks > 1)
      return launch_cluster<T, kThreads, kElements, kBlocks, kWhole>(x, out, rows, cols, stream);
    else
      return launch_registers<T, kThreads, kElements, kWhole>(x, out, rows, cols, stream);
  }
};

// Calls launch(the one of these that is asked for). None is: kNoInstance.
template <typename... Sharings>
struct OneOf {
  template <typename Launch>
  static cudaError_t launch(int threads, int blocks, int elements, Launch launch) {
    cudaError_t status = kNoInstance;
    ((threads == Sharings::threads && blocks == Sharings::blocks &&
      elements == Sharings::elements && (status = launch(Sharings{}), true)) ||
     ...);
    return status;
  }
};

// Those that `registers_plan` in cuda_impl/softmax_plan.py asks for, its tables in their order.
using Of16Bit =
    OneOf<Sharing<4, 1, 8>, Sharing<8, 1, 8>, Sharing<16, 1, 8>, Sharing<16, 1, 16>,
          Sharing<32, 1, 16>, Sharing<32, 1, 24>, Sharing<32, 1, 32>, Sharing<32, 1, 40>,
          Sharing<32, 1, 48>, Sharing<32, 1, 56>, Sharing<32, 1, 64>, Sharing<32, 1, 80>,
          Sharing<32, 1, 96>, Sharing<128, 1, 32>, Sharing<128, 1, 40>, Sharing<128, 1, 48>,
          Sharing<128, 1, 56>, Sharing<128, 2, 32>, Sharing<128, 1, 80>, Sharing<256, 2, 24>,
          Sharing<512, 1, 32>, Sharing<512, 1, 40>, Sharing<256, 2, 48>, Sharing<256, 2, 56>,
          Sharing<128, 4, 64>, Sharing<256, 4, 40>, Sharing<256, 4, 48>, Sharing<256, 5, 40>,
          Sharing<256, 4, 56>, Sharing<256, 4, 64>, Sharing<256, 8, 40>, Sharing<256, 8, 48>,
          Sharing<256, 8, 56>, Sharing<256, 8, 64>, Sharing<256, 16, 40>, Sharing<256, 16, 48>,
          Sharing<256, 16, 56>, Sharing<256, 16, 64>, Sharing<1024, 1, 24>, Sharing<1024, 1, 32>,
          Sharing<128, 1, 8>, Sharing<256, 1, 8>, Sharing<512, 1, 8>, Sharing<1024, 1, 8>,
          Sharing<512, 4, 8>, Sharing<512, 8, 8>, Sharing<512, 4, 16>, Sharing<512, 8, 16>,
          Sharing<512, 4, 32>, Sharing<512, 8, 24>, Sharing<512, 8, 32>>;
using OfFloat =
    OneOf<Sharing<4, 1, 8>, Sharing<8, 1, 8>, Sharing<16, 1, 8>, Sharing<16, 1, 16>,
          Sharing<32, 1, 16>, Sharing<32, 1, 24>, Sharing<32, 1, 32>, Sharing<32, 1, 40>,
          Sharing<32, 1, 48>, Sharing<32, 1, 56>, Sharing<32, 1, 64>, Sharing<128, 1, 24>,
          Sharing<128, 2, 16>, Sharing<256, 1, 24>, Sharing<256, 2, 16>, Sharing<512, 1, 24>,
          Sharing<256, 2, 32>, Sharing<512, 2, 24>, Sharing<512, 2, 32>, Sharing<256, 8, 20>,
          Sharing<256, 8, 24>, Sharing<256, 8, 28>, Sharing<512, 4, 32>, Sharing<512, 8, 24>,
          Sharing<512, 8, 32>, Sharing<512, 16, 24>, Sharing<512, 16, 32>, Sharing<512, 1, 32>,
          Sharing<1024, 1, 24>, Sharing<1024, 1, 32>, Sharing<128, 1, 8>, Sharing<256, 1, 8>,
          Sharing<512, 1, 8>, Sharing<1024, 1, 8>, Sharing<512, 4, 8>, Sharing<512, 8, 8>,
          Sharing<512, 4, 16>, Sharing<512, 8, 16>>;

// As `softmax_registers`, for one type.
template <typename T>
cudaError_t softmax_registers_of(const void* x, void* out, int64_t rows, int64_t cols, int threads,
                                 int elements, int cluster, bool whole, cudaStream_t stream) {
  return with_bool(whole, [&](auto kWhole) {
    const auto launch = [&](auto sharing) {
      return sharing.template launch<T, kWhole>(x, out, rows, cols, stream);
    };
    using Sharings = std::conditional_t<sizeof(T) == 2, Of16Bit, OfFloat>;
    return Sharings::launch(threads, cluster, elements, launch);
  });
}
