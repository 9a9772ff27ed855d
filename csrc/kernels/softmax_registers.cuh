// softmax with one read and one write: the row waits in registers while its sum is found.
//
// 1. Loads of 16 bytes, all of a thread's before any arithmetic.
// 2. One exponential an element, against the thread's own maximum: the row's is not known yet.
// 3. One exchange of (maximum, sum) among the threads that share the row.
// 4. One factor a thread, exp(own maximum - row's maximum) / row's sum, mends step 2.
//
// Short rows: a group of lanes each, many rows a block, no barrier. Longer: a block a row, one
// barrier. Longer still: a cluster of blocks a row, which write their partials into each other's
// shared memory, one cluster barrier.
#pragma once

#include "softmax_online.cuh"
#include "softmax_row.cuh"

// A thread's share of a row, as floats.
template <typename T, int kElements>
struct Share {
  static constexpr int kSize = Pack<T>::kSize;
  static constexpr int kPacks = kElements / kSize;
  float values[kPacks][kSize];

  // Packs first, first + step, ... -> exp(x - max) of each, their maximum and sum.
  template <bool kWhole>
  __device__ __forceinline__ Partial load(const Row<T, int, kWhole>& row, int first, int step) {
    Pack<T> packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) packs[k] = row.load(first + k * step);
    float max = -infinity();
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      unpack(packs[k], values[k]);
#pragma unroll
      for (int i = 0; i < kSize; ++i) max = fmaxf(max, values[k][i]);
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        values[k][i] = exp_below(values[k][i], max);
        sum += values[k][i];
      }
    }
    return {max, sum};
  }

  // mine: what `load` returned; all: the row's.
  template <bool kWhole>
  __device__ __forceinline__ void store(const Row<T, int, kWhole>& row, T* __restrict__ out,
                                        int first, int step, const Partial& mine,
                                        const Partial& all) {
    // A row of -inf alone: 0 * (1 / 0) is NaN, as PyTorch gives. A thread of -inf alone: 0.
    const float scale = exp_below(mine.max, all.max) * reciprocal_approx(all.sum);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) values[k][i] *= scale;
      row.store(out, first + k * step, values[k]);
    }
  }
};

// Threads that must fit an SM together, so that while some wait for loads others compute and
// store: it bounds the registers a thread may have (65536 / 1024 = 64).
template <int kElements>
constexpr int kResident = kElements <= 8    ? 2048
                          : kElements <= 16 ? 1536
                                            : 1024;

// Threads a block, of which kThreads share a row.
template <int kThreads>
constexpr int kBlockOf = kThreads < 128 ? 128 : kThreads;

// kThreads threads a row, each holding kElements elements. Fewer than 128: several rows a block.
template <typename T, int kThreads, int kElements, bool kWhole>
__global__ void __launch_bounds__(kBlockOf<kThreads>, kResident<kElements> / kBlockOf<kThreads>)
    softmax_registers_kernel(const T* __restrict__ x,  // [rows, cols]
                             T* __restrict__ out,      // [rows, cols]
                             int64 rows, int cols) {
  constexpr int kRows = kBlockOf<kThreads> / kThreads;
  const int lane = threadIdx.x % kThreads;
  const int64 number = block_number() * kRows + threadIdx.x / kThreads;
  // Threads without a row stay: they have to be there for shuffles and the barrier.
  const bool idle = number >= rows;
  const int64 offset = idle ? 0 : number * cols;
  const Row<T, int, kWhole> row(x + offset, idle ? 0 : cols);

  Share<T, kElements> share;
  const Partial mine = share.load(row, lane, kThreads);
  Partial all = combine_lanes<(kThreads < 32 ? kThreads : 32)>(mine);
  if constexpr (kThreads > 32) {
    constexpr int kWarps = kThreads / 32;  // that share a row
    __shared__ Partial partials[kRows][kWarps];
    if (lane % 32 == 0) partials[threadIdx.x / kThreads][lane / 32] = all;
    __syncthreads();
    all = combine_shared<kWarps>(partials[threadIdx.x / kThreads]);
  }
  share.store(row, out + offset - row.first, lane, kThreads, mine, all);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CLUSTER_OF(blocks)  // older architectures compile the kernel and are never given it
#else
#define CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)
#endif

// kCluster blocks a row. The size is compiled in, so that any launch call will do.
template <typename T, int kThreads, int kElements, int kCluster, bool kWhole>
__global__ void CLUSTER_OF(kCluster) __launch_bounds__(kThreads, kResident<kElements> / kThreads)
    softmax_cluster_kernel(const T* __restrict__ x,  // [rows, cols]
                           T* __restrict__ out,      // [rows, cols]
                           int64 rows, int cols) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kWarps = kThreads / 32;
  __shared__ Partial partials[kCluster * kWarps];
  // A peer's shared memory exists once the peer has started. The wait is after the loads.
  asm volatile("barrier.cluster.arrive.relaxed;");

  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int64 number = block_number() / kCluster;
  const bool idle = number >= rows;
  const int64 offset = idle ? 0 : number * cols;
  const Row<T, int, kWhole> row(x + offset, idle ? 0 : cols);
  // Blocks take turns along the row, so that all have the same share of one that fills them half.
  const int first = rank * kThreads + threadIdx.x;
  constexpr int kStep = kCluster * kThreads;

  Share<T, kElements> share;
  const Partial mine = share.load(row, first, kStep);
  const Partial of_warp = combine_lanes<32>(mine);

  // The block's own copy before the wait: it also keeps the compiler from waiting before the loads.
  const int lane = threadIdx.x % 32;
  Partial* const slot = &partials[rank * kWarps + threadIdx.x / 32];
  if (lane == rank) *slot = of_warp;
  asm volatile("barrier.cluster.wait;" ::: "memory");
  // Lane c of each warp writes the warp's partial to block c. All reads are of a block's own
  // memory, after the second barrier, so that no block leaves while another needs it.
  if (lane < kCluster && lane != rank) {
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(slot));
    asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(lane));
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(of_warp.max),
                 "f"(of_warp.sum)
                 : "memory");
  }
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
  const Partial all = combine_shared<kCluster * kWarps>(partials);
  share.store(row, out + offset - row.first, first, kStep, mine, all);
#endif
}
