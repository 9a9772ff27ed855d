// How the packed chains are launched: each op's .cu names its kernel and the packs it is built for.
#pragma once

#include "kernels/packs.cuh"
#include "launch.h"
#include "launchers.h"

// The launch of one instance of Kernels::kInstance, which takes what chain_packed_kernel takes.
template <typename Kernels, typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
cudaError_t launch_packed_instance(const PackedChain& chain, cudaStream_t stream) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t count = chain.count, cols = chain.cols;
  // The kernel that goes by rows has kPacks of them under each thread, the last ones perhaps
  // partly.
  const int64_t rows = count / cols;
  const int64_t packs = kBiasPacks ? (rows + kPacks - 1) / kPacks * (cols / kSize)
                                   : (count + kPacks * kSize - 1) / (kPacks * kSize);
  const dim3 grid = grid_of((packs + kThreads - 1) / kThreads);
  // See Division and pointwise_flat in csrc/kernels/pointwise.cuh.
  const uint64_t reciprocal = ~uint64_t{0} / static_cast<uint64_t>(cols);
  const int64_t stride = kThreads * kSize % cols;
  const auto kernel = Kernels::template kInstance<T, kThreads, kPacks, kVector, kBiasPacks>;
  const cudaError_t set = prefer_l1(kernel);
  if (set != cudaSuccess) return set;
  kernel<<<grid, kThreads, 0, stream>>>(
      static_cast<const T*>(chain.x), static_cast<const T*>(chain.residual),
      static_cast<const T*>(chain.bias), static_cast<T*>(chain.out), count, cols, reciprocal,
      stride);
  return cudaGetLastError();
}

// The instances are those that the op's `packed_plan` in cuda_impl/ asks for: kThreads a block, one
// of kRowPacks packs a thread by rows, two otherwise.
template <typename Kernels, int kThreads, int... kRowPacks>
cudaError_t launch_packed(const PackedChain& chain, cudaStream_t stream) {
  if (chain.threads != kThreads) return kNoInstance;
  // The kernel that goes by rows counts within its rows in 32 bits.
  if (chain.bias_packs && (!chain.vector || chain.cols >= int64_t{1} << 28)) return kNoInstance;
  return with_dtype(chain.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (chain.bias_packs) {
      return with_one_of<kRowPacks...>(chain.packs, [&](auto kPacks) {
        return launch_packed_instance<Kernels, T, kThreads, kPacks, true, true>(chain, stream);
      });
    }
    return with_one_of<2>(chain.packs, [&](auto kPacks) {
      return with_bool(chain.vector, [&](auto kVector) {
        return launch_packed_instance<Kernels, T, kThreads, kPacks, kVector, false>(chain, stream);
      });
    });
  });
}
