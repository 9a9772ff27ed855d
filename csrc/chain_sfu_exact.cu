#include "kernels/chain_sfu_exact.cuh"
#include "packed_launch.h"

namespace {

struct Kernels {
  template <typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
  static constexpr auto kInstance =
      chain_sfu_exact_kernel<T, kThreads, kPacks, kVector, kBiasPacks>;
};

}  // namespace

cudaError_t chain_sfu_exact(const PackedChain& chain, cudaStream_t stream) {
  return launch_packed<Kernels, 256, 1, 2>(chain, stream);
}
