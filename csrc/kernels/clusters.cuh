// Blocks that run side by side and reach each other's shared memory (clusters, sm_90).
#pragma once

// Older architectures compile the kernels that use these, and are never given them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CLUSTER_SIZE(blocks)
#else
#define CLUSTER_SIZE(blocks) __cluster_dims__(blocks, 1, 1)
#define HAS_CLUSTERS
#endif

#ifdef HAS_CLUSTERS

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all blocks of the cluster, with what they wrote to shared memory. Warps arrive
// whole, also one whose lanes went different ways before.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// What lies at the same address in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ float load_from(unsigned address, int rank) {
  float value;
  asm volatile(
      "{\n\t"
      ".reg .b32 remote;\n\t"
      "mapa.shared::cluster.u32 remote, %1, %2;\n\t"
      "ld.shared::cluster.f32 %0, [remote];\n\t"
      "}"
      : "=f"(value)
      : "r"(address), "r"(rank)
      : "memory");
  return value;
}

#endif  // HAS_CLUSTERS
