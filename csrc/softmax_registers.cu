#include "kernels/softmax_registers.cuh"
#include "launchers.h"

namespace {

template <typename T, int kThreads>
cudaError_t launch_online(const void* x, void* out, int64_t rows, int64_t cols,
                          cudaStream_t stream) {
  const auto kernel = softmax_online_kernel<T, kThreads>;
  const cudaError_t set = prefer_l1(kernel);
  if (set != cudaSuccess) return set;
  kernel<<<grid_of(rows), kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out),
                                                 rows, cols);
  return cudaGetLastError();
}

template <typename T, int kThreads, int kElements, bool kWhole>
cudaError_t launch_registers(const void* x, void* out, int64_t rows, int64_t cols,
                             cudaStream_t stream) {
  constexpr int kBlock = kBlockOf<kThreads>;
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
  const cudaError_t set = prefer_l1(kernel);
  if (set != cudaSuccess) return set;
  kernel<<<grid, kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(out), rows,
                                        static_cast<int>(cols));
  return cudaGetLastError();
}

}  // namespace

// The instances below are those that `registers_plan` in cuda_impl/softmax.py asks for.
cudaError_t softmax_registers(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                              int threads, int elements, int cluster, bool whole,
                              cudaStream_t stream) {
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kSize = Pack<T>::kSize;
    // A row that starts and ends anywhere touches up to two partial packs. What its threads can't
    // hold would be left out without a word.
    const int64_t slots = whole ? cols : (cols + 2 * (kSize - 1)) / kSize * kSize;
    if (elements != 0 && slots > int64_t{threads} * elements * cluster) return kNoInstance;
    if (elements == 0) {
      return with_one_of<512>(threads, [&](auto kThreads) {
        return launch_online<T, kThreads>(x, out, rows, cols, stream);
      });
    }
    return with_bool(whole, [&](auto kWhole) {
      if (cluster > 1) {
        return with_one_of<512, 1024>(threads, [&](auto kThreads) {
          return with_one_of<24, 32>(elements, [&](auto kElements) {
            return with_one_of<2, 8>(cluster, [&](auto kCluster) {
              return launch_cluster<T, kThreads, kElements, kCluster, kWhole>(x, out, rows, cols,
                                                                              stream);
            });
          });
        });
      }
      if (threads == 4) {
        return with_one_of<8, 16, 24, 32>(elements, [&](auto kElements) {
          return launch_registers<T, 4, kElements, kWhole>(x, out, rows, cols, stream);
        });
      }
      return with_one_of<8, 16, 32, 64, 128, 256, 512, 1024>(threads, [&](auto kThreads) {
        return with_one_of<24, 32>(elements, [&](auto kElements) {
          return launch_registers<T, kThreads, kElements, kWhole>(x, out, rows, cols, stream);
        });
      });
    });
  });
}
