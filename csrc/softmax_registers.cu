#include "kernels/softmax_registers.cuh"
#include "launchers.h"

namespace {

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

// 16-bit rows that are kept as they were loaded, by clusters alone.
template <typename T, bool kWhole>
cudaError_t launch_packed(const void* x, void* out, int64_t rows, int64_t cols, int threads,
                          int elements, int cluster, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    if (threads != 256) return kNoInstance;
    return with_one_of<48, 56, 64>(elements, [&](auto kElements) {
      return with_one_of<2, 4, 8>(cluster, [&](auto kCluster) {
        return launch_cluster<T, 256, kElements, kCluster, kWhole>(x, out, rows, cols, stream);
      });
    });
  }
  return kNoInstance;
}

}  // namespace

// The instances below are those that `registers_plan` in cuda_impl/softmax_plan.py asks for.
cudaError_t softmax_registers(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                              int threads, int elements, int cluster, bool whole,
                              cudaStream_t stream) {
  if (elements == 0) return softmax_online(x, out, rows, cols, dtype, threads, stream);
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kSize = Pack<T>::kSize;
    // A row that starts and ends anywhere touches up to two partial packs. What its threads can't
    // hold would be left out without a word.
    const int64_t slots = whole ? cols : (cols + 2 * (kSize - 1)) / kSize * kSize;
    if (slots > int64_t{threads} * elements * cluster) return kNoInstance;
    return with_bool(whole, [&](auto kWhole) {
      if (elements > kMostFloats) {
        return launch_packed<T, kWhole>(x, out, rows, cols, threads, elements, cluster, stream);
      }
      if (cluster == 4 && threads == 512) {
        return with_one_of<8, 16, 32>(elements, [&](auto kElements) {
          return launch_cluster<T, 512, kElements, 4, kWhole>(x, out, rows, cols, stream);
        });
      }
      if (cluster == 8 && threads == 512) {
        return with_one_of<8, 16, 24, 32>(elements, [&](auto kElements) {
          return launch_cluster<T, 512, kElements, 8, kWhole>(x, out, rows, cols, stream);
        });
      }
      if (cluster > 1) {
        if (threads != 1024) return kNoInstance;
        return with_one_of<24, 32>(elements, [&](auto kElements) {
          if (cluster == 8) {
            return launch_cluster<T, 1024, kElements, 8, kWhole>(x, out, rows, cols, stream);
          }
          if constexpr (sizeof(T) == 4) {
            if (cluster == 2) {
              return launch_cluster<T, 1024, kElements, 2, kWhole>(x, out, rows, cols, stream);
            }
          }
          return kNoInstance;
        });
      }
      if (threads == 4) {
        return with_one_of<8, 16, 24, 32>(elements, [&](auto kElements) {
          return launch_registers<T, 4, kElements, kWhole>(x, out, rows, cols, stream);
        });
      }
      if (elements == 8) {
        return with_one_of<128, 256, 512, 1024>(threads, [&](auto kThreads) {
          return launch_registers<T, kThreads, 8, kWhole>(x, out, rows, cols, stream);
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
