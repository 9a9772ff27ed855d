// How a pointwise op over x [rows, cols], residual [rows, cols] and bias [cols] walks memory.
//
// `Steps` is the op: a class with `static float apply(float x, float residual, float bias)`.
#pragma once

#include "packs.cuh"

// One thread an element, one access an element.
template <typename Steps, typename T>
__device__ __forceinline__ void pointwise_naive(const T* __restrict__ x,         // [count]
                                                const T* __restrict__ residual,  // [count]
                                                const T* __restrict__ bias,      // [cols]
                                                T* __restrict__ out,             // [count]
                                                int64 count, int64 cols) {
  const int64 i = block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float result =
      Steps::apply(to_float(x[i]), to_float(residual[i]), to_float(bias[i % cols]));
  out[i] = from_float<T>(result);
}

// value % cols without a division. reciprocal = floor((2^64 - 1) / cols) makes the quotient the
// true one or one less for every value below 2^63, which the last line mends.
__device__ __forceinline__ int64 remainder(int64 value, int64 cols, unsigned long long reciprocal) {
  const int64 quotient = static_cast<int64>(__umul64hi(value, reciprocal));
  const int64 rest = value - quotient * cols;
  return rest >= cols ? rest - cols : rest;
}

// The pack of x that starts at element `first`. kWhole: it is 16-byte aligned and ends before
// `count`; otherwise what lies past `count` reads as 0 and goes nowhere.
template <bool kWhole, typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* __restrict__ x, int64 first, int64 count) {
  if constexpr (kWhole) {
    return load_once(x + first);
  } else {
    return gather<T>([&](int i) { return first + i < count ? x[first + i] : from_float<T>(0.0f); });
  }
}

template <bool kWhole, typename T>
__device__ __forceinline__ void store_pack(T* __restrict__ out, int64 first, int64 count,
                                           const float (&values)[Pack<T>::kSize]) {
  if constexpr (kWhole) {
    store_once(out + first, pack_floats<T>(values));
  } else {
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
      if (first + i < count) out[first + i] = from_float<T>(values[i]);
    }
  }
}

// The bias beside the pack whose first element is in column `column`.
// kBiasPacks: bias is 16-byte aligned and a pack never crosses a row's end.
template <bool kBiasPacks, typename T>
__device__ __forceinline__ Pack<T> load_bias(const T* __restrict__ bias, int64 column, int64 cols) {
  if constexpr (kBiasPacks) {
    // Read by every row: unlike x, it may stay in L1.
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(bias + column));
    return {{words.x, words.y, words.z, words.w}};
  } else {
    return gather<T>([&](int) {
      const T value = bias[column];
      if (++column == cols) column = 0;
      return value;
    });
  }
}

// A thread's kPacks packs, a block's width apart so that a warp's access is 512 contiguous bytes.
// All loads are sent before any arithmetic.
template <typename Steps, typename T, int kThreads, int kPacks, bool kWhole, bool kBiasPacks>
__device__ __forceinline__ void pointwise_tile(const T* __restrict__ x,
                                               const T* __restrict__ residual,
                                               const T* __restrict__ bias, T* __restrict__ out,
                                               int64 first, int64 count, int64 cols,
                                               unsigned long long reciprocal, int64 stride) {
  constexpr int kSize = Pack<T>::kSize;
  Pack<T> xs[kPacks], residuals[kPacks], biases[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    xs[k] = load_pack<kWhole>(x, first + k * (kThreads * kSize), count);
    residuals[k] = load_pack<kWhole>(residual, first + k * (kThreads * kSize), count);
  }
  int64 column = remainder(first, cols, reciprocal);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    biases[k] = load_bias<kBiasPacks>(bias, column, cols);
    column += stride;
    if (column >= cols) column -= cols;
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    float values[kSize], residual_values[kSize], bias_values[kSize];
    unpack(xs[k], values);
    unpack(residuals[k], residual_values);
    unpack(biases[k], bias_values);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      values[i] = Steps::apply(values[i], residual_values[i], bias_values[i]);
    }
    store_pack<kWhole>(out, first + k * (kThreads * kSize), count, values);
  }
}

// kVector: x, residual and out are 16-byte aligned. kBiasPacks: see `load_bias`.
// reciprocal: see `remainder`. stride: elements from one of a thread's packs to its next, % cols.
template <typename Steps, typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
__device__ __forceinline__ void pointwise_packed(const T* __restrict__ x,         // [count]
                                                 const T* __restrict__ residual,  // [count]
                                                 const T* __restrict__ bias,      // [cols]
                                                 T* __restrict__ out,             // [count]
                                                 int64 count, int64 cols,
                                                 unsigned long long reciprocal, int64 stride) {
  static_assert(kVector || !kBiasPacks, "packs of bias go with packs of x");
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kTile = kThreads * kPacks * kSize;
  const int64 tile = block_number() * kTile;
  const int64 first = tile + threadIdx.x * kSize;
  // Only the last block can reach past the end, so that the others carry no bounds.
  if (kVector && tile + kTile <= count) {
    pointwise_tile<Steps, T, kThreads, kPacks, true, kBiasPacks>(x, residual, bias, out, first,
                                                                 count, cols, reciprocal, stride);
  } else {
    pointwise_tile<Steps, T, kThreads, kPacks, false, false>(x, residual, bias, out, first, count,
                                                             cols, reciprocal, stride);
  }
}
