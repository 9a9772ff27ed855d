// How a pointwise op over x [rows, cols], residual [rows, cols] and bias [cols] walks memory.
//
// `Steps` is the op: a class with `static float apply(float x, float residual, float bias)`.
#pragma once

#include "packs.cuh"

// value / cols and value % cols without a division. reciprocal = floor((2^64 - 1) / cols) makes the
// quotient the true one or one less for every value below 2^63, which the last lines mend.
struct Division {
  int64 quotient;
  int64 remainder;

  __device__ __forceinline__ Division(int64 value, int64 cols, unsigned long long reciprocal) {
    quotient = static_cast<int64>(__umul64hi(value, reciprocal));
    remainder = value - quotient * cols;
    if (remainder >= cols) {
      remainder -= cols;
      ++quotient;
    }
  }
};

// The steps on kPacks packs, each beside its pack of bias; xs becomes the result. Word by word over
// all packs, so that what only depends on the bias is computed once where packs share it.
template <typename Steps, typename T, int kPacks, int kBiases>
__device__ __forceinline__ void apply_steps(Pack<T> (&xs)[kPacks],
                                            const Pack<T> (&residuals)[kPacks],
                                            const Pack<T> (&biases)[kBiases]) {
  static_assert(kBiases == 1 || kBiases == kPacks, "one bias for all packs or one for each");
  constexpr int kPerWord = Pack<T>::kPerWord;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float x[kPerWord], residual[kPerWord], bias[kPerWord];
      unpack_word<T>(xs[k].words[w], x);
      unpack_word<T>(residuals[k].words[w], residual);
      unpack_word<T>(biases[k % kBiases].words[w], bias);
#pragma unroll
      for (int i = 0; i < kPerWord; ++i) x[i] = Steps::apply(x[i], residual[i], bias[i]);
      xs[k].words[w] = pack_word<T>(x);
    }
  }
}

// Threads an SM that registers are to be left for: fewer where a thread has more packs in flight.
// Two packs and 48 registers: chain at 2^24 float16 reaches 0.98 of a copy, with 56 registers 0.94.
template <int kPacks, bool kBiasPacks>
constexpr int kPackedResident = !kBiasPacks   ? 768
                                : kPacks == 1 ? 1536
                                : kPacks == 2 ? 1280
                                              : 1024;

// Rows of whole packs: a thread takes the same pack of kPacks rows, one below the other, and shares
// one pack of bias between them. A warp's access is 512 contiguous bytes of each row.
//
// Everything is 16-byte aligned, and so is every row; cols < 2^28. reciprocal: of cols, see
// Division.
template <typename Steps, typename T, int kThreads, int kPacks>
__device__ __forceinline__ void pointwise_rows(const T* __restrict__ x,         // [rows, cols]
                                               const T* __restrict__ residual,  // [rows, cols]
                                               const T* __restrict__ bias,      // [cols]
                                               T* __restrict__ out,             // [rows, cols]
                                               int64 count, int64 cols,
                                               unsigned long long reciprocal) {
  const int64 unit = (block_number() * kThreads + threadIdx.x) * Pack<T>::kSize;
  const Division place(unit, cols, reciprocal);  // kPacks rows make one row of units
  const int64 first = unit + place.quotient * (kPacks - 1) * cols;
  if (first >= count) return;

  // 32 bits from the first row on: 64-bit sums for each of x, residual and out would take two
  // issue slots an element.
  const int width = static_cast<int>(cols);
  const int left = static_cast<int>(min(count - first, int64{1} << 30));
  int below[kPacks];
  Pack<T> xs[kPacks], residuals[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    // Below the last row there is nothing: the first row again, with the same result.
    below[k] = k * width < left ? k * width : 0;
    xs[k] = load_once(x + first + below[k]);
    residuals[k] = load_once(residual + first + below[k]);
  }
  // Read by every row: unlike x, it may stay in L1.
  const uint4 words = __ldg(reinterpret_cast<const uint4*>(bias + place.remainder));
  const Pack<T> biases[1] = {{{words.x, words.y, words.z, words.w}}};
  apply_steps<Steps>(xs, residuals, biases);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) store_once(out + first + below[k], xs[k]);
}

// The pack of x that starts at element `first`, whole or not. What lies past `count` reads as 0.
template <bool kVector, typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* __restrict__ x, int64 first, int64 count) {
  if (kVector && first + Pack<T>::kSize <= count) return load_once(x + first);
  return gather<T>([&](int i) { return first + i < count ? x[first + i] : from_float<T>(0.0f); });
}

template <bool kVector, typename T>
__device__ __forceinline__ void store_pack(T* __restrict__ out, int64 first, int64 count,
                                           const Pack<T>& pack) {
  if (kVector && first + Pack<T>::kSize <= count) {
    store_once(out + first, pack);
    return;
  }
  float values[Pack<T>::kSize];
  unpack(pack, values);
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) {
    if (first + i < count) out[first + i] = from_float<T>(values[i]);
  }
}

// Any rows and any alignment: the elements as one long row, a thread's packs a block's width apart.
//
// kVector: x, residual and out are 16-byte aligned.
// stride: elements from one of a thread's packs to its next, modulo cols.
template <typename Steps, typename T, int kThreads, int kPacks, bool kVector>
__device__ __forceinline__ void pointwise_flat(const T* __restrict__ x,         // [count]
                                               const T* __restrict__ residual,  // [count]
                                               const T* __restrict__ bias,      // [cols]
                                               T* __restrict__ out,             // [count]
                                               int64 count, int64 cols,
                                               unsigned long long reciprocal, int64 stride) {
  constexpr int kSize = Pack<T>::kSize;
  const int64 first = (block_number() * (kThreads * kPacks) + threadIdx.x) * kSize;

  Pack<T> xs[kPacks], residuals[kPacks], biases[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    xs[k] = load_pack<kVector>(x, first + k * (kThreads * kSize), count);
    residuals[k] = load_pack<kVector>(residual, first + k * (kThreads * kSize), count);
  }
  int64 start = Division(first, cols, reciprocal).remainder;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    int64 column = start;
    biases[k] = gather<T>([&](int) {
      const T value = bias[column];
      if (++column == cols) column = 0;
      return value;
    });
    start += stride;
    if (start >= cols) start -= cols;
  }
  apply_steps<Steps>(xs, residuals, biases);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    store_pack<kVector>(out, first + k * (kThreads * kSize), count, xs[k]);
  }
}

// kBiasPacks: as pointwise_rows asks. kVector: as pointwise_flat does.
template <typename Steps, typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
__device__ __forceinline__ void pointwise_packed(const T* __restrict__ x,
                                                 const T* __restrict__ residual,
                                                 const T* __restrict__ bias, T* __restrict__ out,
                                                 int64 count, int64 cols,
                                                 unsigned long long reciprocal, int64 stride) {
  static_assert(kVector || !kBiasPacks, "packs of bias go with packs of x");
  if constexpr (kBiasPacks) {
    pointwise_rows<Steps, T, kThreads, kPacks>(x, residual, bias, out, count, cols, reciprocal);
  } else {
    pointwise_flat<Steps, T, kThreads, kPacks, kVector>(x, residual, bias, out, count, cols,
                                                        reciprocal, stride);
  }
}
