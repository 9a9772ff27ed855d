#include <algorithm>
#include <atomic>

#include "kernels/softmax_streamed.cuh"
#include "launchers.h"

namespace {

constexpr int kThreads = 1024;
constexpr int kRing = 12;  // packs a thread
constexpr int kDevices = 64;

// How many clusters of a kernel the device holds at once; the others would wait until one of them
// is through all of its rows. Asked once a kernel and device, since the answer takes longer than a
// launch.
template <typename Kernel>
cudaError_t clusters_at_once(Kernel* kernel, int threads, int cluster, int shared_bytes,
                             int* clusters) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(cluster);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(clusters, kernel, &config);
}

template <typename T, int kThreads, int kElements, int kCluster, bool kWhole>
cudaError_t launch(const void* x, void* out, int64_t rows, int64_t cols, cudaStream_t stream) {
  constexpr int kSlots = kRing * 8 / kElements;
  constexpr int kBytes = kRingBytes<kThreads, kElements, kSlots>;
  const auto kernel = softmax_streamed_kernel<T, kThreads, kElements, kCluster, kSlots, kWhole>;
  cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (status != cudaSuccess) return status;
  // Else an SM that had more L1 before might hold one block where two fit.
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
  if (status != cudaSuccess) return status;
  int device;
  status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  static std::atomic<int> known[kDevices];  // 0: not asked yet
  std::atomic<int>& answer = known[device % kDevices];
  int clusters = device < kDevices ? answer.load() : 0;
  if (clusters == 0) {
    status = clusters_at_once(kernel, kThreads, kCluster, kBytes, &clusters);
    if (status != cudaSuccess) return status;
    answer = clusters = std::max(clusters, 1);
  }
  const auto groups = static_cast<unsigned>(std::min<int64_t>(rows, clusters));
  kernel<<<groups * kCluster, kThreads, kBytes, stream>>>(
      static_cast<const T*>(x), static_cast<T*>(out), rows, static_cast<int>(cols));
  return cudaGetLastError();
}

}  // namespace

// The instances below are those that `streamed_plan` in cuda_impl/softmax_plan.py asks for.
cudaError_t softmax_streamed(const void* x, void* out, int64_t rows, int64_t cols, DType dtype,
                             int threads, int elements, int cluster, int slots, bool whole,
                             cudaStream_t stream) {
  if (threads != kThreads || slots * elements != kRing * 8) return kNoInstance;
  return with_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    constexpr int kSize = Pack<T>::kSize;
    // A row that starts anywhere in a line. What its threads can't hold would be left out without a
    // word.
    const int64_t before = whole ? 0 : kLine / static_cast<int>(sizeof(T)) - 1;
    const int64_t held = int64_t{threads} * elements * cluster;
    if ((before + cols + kSize - 1) / kSize * kSize > held) return kNoInstance;
    return with_bool(whole, [&](auto kWhole) {
      return with_one_of<24, 32>(elements, [&](auto kElements) {
        return with_one_of<1, 2, 4, 8>(cluster, [&](auto kCluster) {
          return launch<T, kThreads, kElements, kCluster, kWhole>(x, out, rows, cols, stream);
        });
      });
    });
  });
}
