// softmax with one read and one write: the row waits in registers while its sum is found.
//
// 1. Loads of 16 bytes, all of a thread's before any arithmetic.
// 2. One exponential an element, against the thread's own maximum: the row's is not known yet.
// 3. One exchange of (maximum, sum) among the threads that share the row.
// 4. One factor a thread, exp(own maximum - row's maximum) / row's sum, mends step 2.
//
// Short rows: a group of lanes each, many rows a block, no barrier. Longer: a block a row, one
// barrier. Longer still: a cluster of blocks a row, which write their partials into each other's
// shared memory.
#pragma once

#include "softmax_cluster.cuh"
#include "softmax_online.cuh"
#include "softmax_share.cuh"

// Threads that must fit an SM together, so that while some wait for loads others compute and
// store: it bounds the registers a thread may have (65536 / 1024 = 64). A packed share of 64
// elements has 32 registers of data alone, and would spill with 64.
template <int kElements>
constexpr int kResident = kElements <= 8    ? 2048
                          : kElements <= 16 ? 1536
                          : kElements <= 40 ? 1024
                          : kElements <= 64 ? 768
                                            : 512;

// Threads a block, of which kThreads share a row. A warp that holds a row of its own is a block:
// whoever is done makes room for the next, where four in one block wait for the slowest. 1024
// columns of bfloat16: 0.998 of a copy, and 0.978.
template <int kThreads, int kElements>
constexpr int kBlockOf = kThreads == 32 && kElements >= 24 ? 32
                         : kThreads < 128                  ? 128
                                                           : kThreads;

// Where the packs of a row that starts anywhere are counted from. Warps that share a row divide it
// at lines, and none between two of them, which would move by two requests: at 5001 columns of
// bfloat16 0.93 of a copy, and 0.78 counted from packs. A warp that has a row for itself, or
// several, would hold less of it.
template <int kThreads>
constexpr int kBoundaryOf = kThreads > 32 ? kLine : 16;

// kThreads threads a row, each holding kElements elements. Fewer than 128: several rows a block.
template <typename T, int kThreads, int kElements, bool kWhole>
__global__ void __launch_bounds__(kBlockOf<kThreads, kElements>,
                                  kResident<kElements> / kBlockOf<kThreads, kElements>)
    softmax_registers_kernel(const T* __restrict__ x,  // [rows, cols]
                             T* __restrict__ out,      // [rows, cols]
                             int64 rows, int cols) {
  constexpr int kRows = kBlockOf<kThreads, kElements> / kThreads;
  const int lane = threadIdx.x % kThreads;
  const int64 number = block_number() * kRows + threadIdx.x / kThreads;
  // Threads without a row stay: they have to be there for shuffles and the barrier.
  const bool idle = number >= rows;
  const int64 offset = idle ? 0 : number * cols;
  const auto row =
      Row<T, int, kWhole>(x + offset, idle ? 0 : cols, kBoundaryOf<kThreads>).from(lane);

  Share<T, kElements> share;
  const Partial mine = share.load(row, kThreads);
  Partial all = combine_lanes<(kThreads < 32 ? kThreads : 32)>(mine);
  if constexpr (kThreads > 32) {
    constexpr int kWarps = kThreads / 32;  // that share a row
    __shared__ Partial partials[kRows][kWarps];
    if (lane % 32 == 0) partials[threadIdx.x / kThreads][lane / 32] = all;
    __syncthreads();
    all = combine_shared<kWarps>(partials[threadIdx.x / kThreads]);
  }
  share.store(row, out + offset - row.first, kThreads, mine, all);
}

// kCluster blocks a row. The size is compiled in, so that any launch call will do.
template <typename T, int kThreads, int kElements, int kCluster, bool kWhole>
__global__ void CLUSTER_SIZE(kCluster) __launch_bounds__(kThreads, kResident<kElements> / kThreads)
    softmax_cluster_kernel(const T* __restrict__ x,  // [rows, cols]
                           T* __restrict__ out,      // [rows, cols]
                           int64 rows, int cols) {
#ifdef HAS_CLUSTERS
  __shared__ Exchange<kCluster, kThreads / 32> exchange;
  if (threadIdx.x == 0) {
    exchange.init();
    exchange.expect();
  }
  cluster_started();

  const int rank = cluster_rank();
  const int64 number = block_number() / kCluster;
  const bool idle = number >= rows;
  const int64 offset = idle ? 0 : number * cols;
  // Blocks take turns along the row, so that all have the same share of one that fills them half.
  const int first = rank * kThreads + threadIdx.x;
  const auto row = Row<T, int, kWhole>(x + offset, idle ? 0 : cols, kLine).from(first);
  constexpr int kStep = kCluster * kThreads;

  Share<T, kElements> share;
  const Partial mine = share.load(row, kStep);
  const Partial of_warp = combine_lanes<32>(mine);
  // The same as the block sends itself. A store that the wait may not overtake keeps the compiler
  // from waiting before the loads.
  if (threadIdx.x % 32 == 0) *exchange.slot(rank) = of_warp;
  cluster_wait_started();
  exchange.send(of_warp, rank);
  const Partial all = exchange.wait();
  share.store(row, out + offset - row.first, kStep, mine, all);
#else
  // No clusters: rather no result than a wrong one.
  __trap();
#endif
}
