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

// Every thread says that it has started; a peer's shared memory, with what was initialised there,
// exists once all have.
__device__ __forceinline__ void cluster_started() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait_started() {
  asm volatile("barrier.cluster.wait;" ::: "memory");
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

// Writes 16 bytes to the same address in block `rank` of the cluster, which counts them at its
// barrier. Both addresses are the calling block's own.
__device__ __forceinline__ void send_four(unsigned to, const float4& values, unsigned barrier,
                                          int rank) {
  asm volatile(
      "{\n\t"
      ".reg .b32 remote, counter;\n\t"
      "mapa.shared::cluster.u32 remote, %0, %6;\n\t"
      "mapa.shared::cluster.u32 counter, %1, %6;\n\t"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [remote], {%2, %3, %4, %5}, "
      "[counter];\n\t"
      "}" ::"r"(to),
      "r"(barrier), "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w), "r"(rank)
      : "memory");
}

// Until the barrier's phase of that parity has ended, with all that peers sent.
__device__ __forceinline__ void wait_for_sent(unsigned barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

#endif  // HAS_CLUSTERS
