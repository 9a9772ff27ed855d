// A thread's share of a row, held as floats while the row's sum is found.
#pragma once

#include "softmax_row.cuh"

template <typename T, int kElements>
struct Share {
  static constexpr int kSize = Pack<T>::kSize;
  static constexpr int kPacks = kElements / kSize;
  float values[kPacks][kSize];

  // exp(x - max) of each element, their maximum and sum. Elements beyond the row are -inf.
  __device__ __forceinline__ Partial weigh(const Pack<T> (&packs)[kPacks]) {
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

  // Packs 0, step, 2 step, ... of a row in memory, which is counted from the thread's first. All
  // loads go out before any arithmetic.
  template <bool kWhole>
  __device__ __forceinline__ Partial load(const Row<T, int, kWhole>& row, int step) {
    Pack<T> packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) packs[k] = row.load(k * step);
    return weigh(packs);
  }

  // mine: what `weigh` or `load` returned; all: the row's.
  template <bool kWhole>
  __device__ __forceinline__ void store(const Row<T, int, kWhole>& row, T* __restrict__ out,
                                        int step, const Partial& mine, const Partial& all) {
    // A row of -inf alone: 0 * (1 / 0) is NaN, as PyTorch gives. A thread of -inf alone: 0.
    const float scale = exp_below(mine.max, all.max) * reciprocal_approx(all.sum);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) values[k][i] *= scale;
      row.store(out, k * step, values[k]);
    }
  }
};
