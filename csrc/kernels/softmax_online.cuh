// softmax for rows that no set of registers holds: two reads, one write, a block a row.
//
// The first read keeps a running maximum and a sum that is rescaled when the maximum grows
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). The second walks
// backwards, so that it starts with what L2 still holds.
#pragma once

#include "softmax_row.cuh"

template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    softmax_online_kernel(const T* __restrict__ x,  // [rows, cols]
                          T* __restrict__ out,      // [rows, cols]
                          int64 rows, int64 cols) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kPacks = 32 / kSize;  // in flight a thread: 32 elements
  constexpr int kWarps = kThreads / 32;
  const int64 number = block_number();
  if (number >= rows) return;  // the whole block: nobody waits at the barrier below
  const Row<T, int64, false> row(x + number * cols, cols, kLine);
  T* const row_out = out + number * cols - row.first;
  const int64 steps = (row.last + kThreads * 32 - 1) / (kThreads * 32);

  Partial mine = {-infinity(), 0.0f};
  for (int64 step = 0; step < steps; ++step) {
    Pack<T> packs[kPacks];
    row.load(packs, step * kPacks * kThreads + threadIdx.x, kThreads);
    float values[kPacks][kSize];
    Partial more = {-infinity(), 0.0f};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      unpack(packs[k], values[k]);
#pragma unroll
      for (int i = 0; i < kSize; ++i) more.max = fmaxf(more.max, values[k][i]);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) more.sum += exp_below(values[k][i], more.max);
    }
    mine = combine(mine, more);
  }

  __shared__ Partial partials[kWarps];
  mine = combine_lanes<32>(mine);
  if (threadIdx.x % 32 == 0) partials[threadIdx.x / 32] = mine;
  __syncthreads();
  const Partial all = combine_shared<kWarps>(partials);
  // A row of -inf alone: 0 * (1 / 0) is NaN, as PyTorch gives.
  const float scale = reciprocal_approx(all.sum);

  for (int64 step = steps - 1; step >= 0; --step) {
    Pack<T> packs[kPacks];
    const int64 first = step * kPacks * kThreads + threadIdx.x;
    row.load(packs, first, kThreads);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float values[kSize];
      unpack(packs[k], values);
#pragma unroll
      for (int i = 0; i < kSize; ++i) values[i] = exp_below(values[i], all.max) * scale;
      row.store(row_out, first + k * kThreads, values);
    }
  }
}
