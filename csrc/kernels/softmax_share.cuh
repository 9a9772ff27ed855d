// A thread's share of a row, kept in registers while the row's sum is found.
#pragma once

#include "softmax_row.cuh"

// The most floats of a row of 16-bit elements that a thread keeps; more stay as they were loaded.
constexpr int kMostFloats = 32;

// The larger of each of two 16-bit values. A NaN beside a number is dropped: it is in the sum.
template <typename T>
__device__ __forceinline__ unsigned max_word(unsigned a, unsigned b) {
  if constexpr (kSame<T, __half>) {
    const __half2 larger =
        __hmax2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
    return *reinterpret_cast<const unsigned*>(&larger);
  } else {
    const __nv_bfloat162 larger = __hmax2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                          *reinterpret_cast<const __nv_bfloat162*>(&b));
    return *reinterpret_cast<const unsigned*>(&larger);
  }
}

// Kept as floats, exp(x - the thread's maximum): one exponential an element.
template <typename T, int kElements, bool kPacked = (sizeof(T) == 2 && kElements > kMostFloats)>
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
    row.load(packs, 0, step);
    return weigh(packs);
  }

  template <bool kWhole>
  __device__ __forceinline__ void store(const Row<T, int, kWhole>& row, T* __restrict__ out,
                                        int step, const Partial& mine, const Partial& all) {
    finish(mine, all,
           [&](int k, const float (&results)[kSize]) { row.store(out, k * step, results); });
  }

  // Calls put(k, results of pack k). mine: what `weigh` or `load` returned; all: the row's.
  template <typename Put>
  __device__ __forceinline__ void finish(const Partial& mine, const Partial& all, Put put) {
    // A row of -inf alone: 0 * (1 / 0) is NaN, as PyTorch gives. A thread of -inf alone: 0.
    const float scale = exp_below(mine.max, all.max) * reciprocal_approx(all.sum);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) values[k][i] *= scale;
      put(k, values[k]);
    }
  }
};

// Kept as it was loaded, in half the registers: twice the row a thread, and so twice the bytes that
// an SM has on their way. Costs a second exponential an element.
template <typename T, int kElements>
struct Share<T, kElements, true> {
  static_assert(sizeof(T) == 2, "floats take the same room either way");
  static constexpr int kSize = Pack<T>::kSize;
  static constexpr int kPacks = kElements / kSize;
  Pack<T> packs[kPacks];

  template <bool kWhole>
  __device__ __forceinline__ Partial load(const Row<T, int, kWhole>& row, int step) {
    Pack<T> loaded[kPacks];
    row.load(loaded, 0, step);
    return weigh(loaded);
  }

  __device__ __forceinline__ Partial weigh(const Pack<T> (&loaded)[kPacks]) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) packs[k] = loaded[k];
    unsigned larger = packs[0].words[0];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int w = 0; w < 4; ++w) larger = max_word<T>(larger, packs[k].words[w]);
    }
    float pair[2];
    unpack_word<T>(larger, pair);
    // fmaxf with -inf: a thread of NaN alone has no maximum.
    const float max = fmaxf(fmaxf(pair[0], pair[1]), -infinity());
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        unpack_word<T>(packs[k].words[w], pair);
        sum += exp_below(pair[0], max);
        sum += exp_below(pair[1], max);
      }
    }
    return {max, sum};
  }

  template <bool kWhole>
  __device__ __forceinline__ void store(const Row<T, int, kWhole>& row, T* __restrict__ out,
                                        int step, const Partial&, const Partial& all) {
    // exp(x - max) / sum as one exponential. A row of -inf alone: -inf + inf is NaN.
    const float max = all.max == -infinity() ? 0.0f : all.max;
    const float shift = -log2_approx(all.sum);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      // Anew: floats that were kept from the sum would take the room that packs save.
#pragma unroll
      for (int w = 0; w < 4; ++w) asm volatile("" : "+r"(packs[k].words[w]));
      float values[kSize];
      unpack(packs[k], values);
#pragma unroll
      for (int i = 0; i < kSize; ++i) values[i] = exp2_approx((values[i] - max) * kLog2e + shift);
      row.store(out, k * step, values);
    }
  }
};
