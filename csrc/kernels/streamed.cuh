// How a pointwise op walks memory when its threads stay on their columns and walk down the rows.
//
// Memory waits for no arithmetic: each thread has its next kDepth - 1 rows on their way to shared
// memory while it computes one, without a register for any of them. What depends on the bias alone
// is computed once a thread and no longer once every few rows, and there is no division. All blocks
// run at once: there is no last, half empty wave.
#pragma once

#include "async_copies.cuh"
#include "pointwise.cuh"

// Rows of whole packs, 16-byte aligned. A block takes a row of its kThreads packs of columns, then
// the one gridDim.y rows below: all blocks move down as one band.
//
// Every thread reads back from shared memory only what it copied there itself, so it waits for its
// own copies and there is no barrier. A slot is filled again one row after it was read: by then
// what was read has been used, and so has arrived.
template <typename Steps, typename T, int kThreads, int kDepth>
__device__ __forceinline__ void pointwise_streamed(const T* __restrict__ x,         // [rows, cols]
                                                   const T* __restrict__ residual,  // [rows, cols]
                                                   const T* __restrict__ bias,      // [cols]
                                                   T* __restrict__ out,             // [rows, cols]
                                                   int64 rows, int64 cols) {
  __shared__ uint4 ring[kDepth][2][kThreads];
  const int64 column = (static_cast<int64>(blockIdx.x) * kThreads + threadIdx.x) * Pack<T>::kSize;
  if (column >= cols) return;
  const uint4 words = __ldg(reinterpret_cast<const uint4*>(bias + column));
  const Pack<T> biases[1] = {{{words.x, words.y, words.z, words.w}}};

  // In elements; a row's index is needed only to see its end.
  const int64 step = static_cast<int64>(gridDim.y) * cols;
  const int64 end = rows * cols;
  int64 here = static_cast<int64>(blockIdx.y) * cols + column;
  int64 ahead = here;
  const auto fetch = [&](int slot) {
    if (ahead < end) {
      copy_async(&ring[slot][0][threadIdx.x], x + ahead);
      copy_async(&ring[slot][1][threadIdx.x], residual + ahead);
    }
    // Even where nothing was left to copy: groups are what is counted.
    commit_copies();
    ahead += step;
  };
#pragma unroll
  for (int slot = 0; slot < kDepth - 1; ++slot) fetch(slot);
  while (true) {
#pragma unroll
    for (int slot = 0; slot < kDepth; ++slot) {
      if (here >= end) return;
      wait_for_copies<kDepth - 2>();
      const uint4 a = ring[slot][0][threadIdx.x], b = ring[slot][1][threadIdx.x];
      fetch((slot + kDepth - 1) % kDepth);
      Pack<T> xs[1] = {{{a.x, a.y, a.z, a.w}}};
      const Pack<T> residuals[1] = {{{b.x, b.y, b.z, b.w}}};
      apply_steps<Steps>(xs, residuals, biases);
      store_once(out + here, xs[0]);
      here += step;
    }
  }
}
