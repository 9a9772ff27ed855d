// Blocks of a cluster that share a row: their partials meet in distributed shared memory.
//
// Each warp sends its partial to all blocks, and each block counts the bytes that it gets. Stores
// and a barrier of the cluster would do too, but what makes them visible before the barrier is a
// fence that waits for all of a thread's memory traffic.
#pragma once

#include "clusters.cuh"
#include "softmax_row.cuh"

#ifdef HAS_CLUSTERS

// The partials of one row, in shared memory, at the same place in each block. One thread of a block
// calls init and expect before cluster_started(). Then all warps send and wait.
//
// No block ends while a peer may write to it: it waits until all have written.
template <int kCluster, int kWarps>
struct Exchange {
  static constexpr int kCount = kCluster * kWarps;
  Partial partials[kCount];
  unsigned long long barrier;

  __device__ __forceinline__ unsigned address() {
    return static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  }

  // Of the calling warp, in block `rank`.
  __device__ __forceinline__ Partial* slot(int rank) {
    return &partials[rank * kWarps + threadIdx.x / 32];
  }

  __device__ __forceinline__ void init() {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], 1;\n\t"
        "fence.mbarrier_init.release.cluster;" ::"r"(address())
        : "memory");
  }

  // Bytes may arrive before they are expected: the one arrival is what ends the phase.
  __device__ __forceinline__ void expect() {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "n"(kCount * sizeof(Partial))
                 : "memory");
  }

  // Lane c writes to block c, also to its own.
  __device__ __forceinline__ void send(const Partial& of_warp, int rank) {
    const int lane = threadIdx.x % 32;
    if (lane < kCluster) {
      asm volatile(
          "{\n\t"
          ".reg .b32 to, counter;\n\t"
          "mapa.shared::cluster.u32 to, %0, %4;\n\t"
          "mapa.shared::cluster.u32 counter, %1, %4;\n\t"
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [to], {%2, %3}, "
          "[counter];\n\t"
          "}" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(slot(rank)))),
          "r"(address()), "f"(of_warp.max), "f"(of_warp.sum), "r"(lane)
          : "memory");
    }
  }

  // Until all of them are there.
  __device__ __forceinline__ Partial wait() {
    wait_for_sent(address(), 0);
    return combine_shared<kCount>(partials);
  }
};

#endif  // HAS_CLUSTERS
