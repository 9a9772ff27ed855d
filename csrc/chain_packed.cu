#include "kernels/chain_packed.cuh"
#include "packed_launch.h"

namespace {

struct Kernels {
  template <typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
  static constexpr auto kInstance = chain_packed_kernel<T, kThreads, kPacks, kVector, kBiasPacks>;
};

}  // namespace

cudaError_t chain_packed(const PackedChain& chain, cudaStream_t stream) {
  return launch_packed<Kernels, 128, 1, 2, 4>(chain, stream);
}
