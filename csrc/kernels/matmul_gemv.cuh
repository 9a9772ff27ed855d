// matmul for one to four rows of a and a weight [N, K]: no tensor cores, no shared memory but for
// the last sums. All that counts is that the weight's bytes never stop coming, so, beside
// matmul_tiled:
//
// 1. A block takes four rows of the weight and goes. There are many times more blocks than places,
//    and whoever is done takes the next: multiprocessors that memory serves more slowly do fewer.
//    Blocks that stay, with as many rows each, and the next steps in registers besides, took 118 us
//    for 8192 x 28672 on an H200, these 103.
// 2. All threads side by side: a row comes 4 KB at a time, which memory likes better than many rows
//    in small pieces.
// 3. A thread asks for eight packs of 16 bytes before it multiplies any: 128 KB a multiprocessor
//    are on their way. L1 is left to a.
#pragma once

#include "packs.cuh"

constexpr int kGemvRows = 4;   // of the weight, a block
constexpr int kGemvSteps = 2;  // of k, a thread has on their way, each a pack of every row

// Threads an SM that registers are left for: each row of a, and packs that are put together from
// elements, take more of them.
template <int kBatch, bool kVector>
constexpr int kGemvResident = !kVector      ? 512
                              : kBatch == 1 ? 1024
                              : kBatch == 2 ? 768
                                            : 512;

// Elements at, at + 1, ... of a row of k. kVector: a whole pack. kOnce: it takes no place in L1.
template <bool kVector, bool kOnce, typename T>
__device__ __forceinline__ Pack<T> load_of_row(const T* row, int at, int k) {
  if constexpr (!kVector) {
    return gather<T>([&](int i) { return at + i < k ? row[at + i] : from_float<T>(0.0f); });
  } else if constexpr (!kOnce) {
    return load_once(row + at);
  } else {
    Pack<T> pack;
    // volatile: before anything is computed of the loads that stand before it.
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pack.words[0]), "=r"(pack.words[1]), "=r"(pack.words[2]),
                   "=r"(pack.words[3])
                 : "l"(row + at));
    return pack;
  }
}

// Adds up kCount values over the warp: lane l returns the sum of value l / (32 / kCount). Each
// exchange halves the values that a lane goes on with, so that it takes kCount shuffles, not five
// for every value. kWidth: lanes to the one that a lane exchanges with.
template <int kCount, int kWidth = 16>
__device__ __forceinline__ float sum_lanes(float* values) {
  constexpr int kHalf = kCount / 2;
  const bool upper = threadIdx.x & kWidth;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float mine = upper ? values[i + kHalf] : values[i];
    const float theirs = upper ? values[i] : values[i + kHalf];
    values[i] = mine + __shfl_xor_sync(0xffffffff, theirs, kWidth);
  }
  if constexpr (kHalf == 0) values[0] += __shfl_xor_sync(0xffffffff, values[0], kWidth);
  if constexpr (kWidth > 1) return sum_lanes<(kHalf > 0 ? kHalf : 1), kWidth / 2>(values);
  return values[0];
}

// a: [m, k], m <= kBatch, rows a_stride apart; b: [n, k], rows b_stride apart; k < 2^30. kVector:
// all rows start at multiples of 16 bytes, and k is a multiple of 8; others come element by
// element. The grid has a block for every kGemvRows rows of b.
template <typename T, int kThreads, int kBatch, bool kVector>
__global__ void __launch_bounds__(kThreads, kGemvResident<kBatch, kVector> / kThreads)
    matmul_gemv_kernel(const T* __restrict__ a, const T* __restrict__ b,
                       T* __restrict__ out,  // [m, n]
                       int m, int64 n, int k, int64 a_stride, int64 b_stride) {
  static_assert(sizeof(T) == 2, "a pack is taken to be eight elements");
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kSpan = kThreads * kSize;
  constexpr int kSteps = kVector ? kGemvSteps : 1;
  constexpr int kCount = kGemvRows * kBatch;
  const int64 first = static_cast<int64>(blockIdx.x) * kGemvRows;
  const int rows = static_cast<int>(min(n - first, int64{kGemvRows}));
  // Rows that aren't there: the last one again, and its sums are not stored.
  const T* weight[kGemvRows];
#pragma unroll
  for (int r = 0; r < kGemvRows; ++r) weight[r] = b + (first + min(r, rows - 1)) * b_stride;

  float sums[kCount] = {};
#pragma unroll 1
  for (int at = threadIdx.x * kSize; at < k; at += kSteps * kSpan) {
    Pack<T> weights[kSteps][kGemvRows] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (at + step * kSpan >= k) break;
#pragma unroll
      for (int r = 0; r < kGemvRows; ++r) {
        weights[step][r] = load_of_row<kVector, true>(weight[r], at + step * kSpan, k);
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (at + step * kSpan >= k) break;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const Pack<T> of_a =
            load_of_row<kVector, false>(a + min(i, m - 1) * a_stride, at + step * kSpan, k);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          float x[2];
          unpack_word<T>(of_a.words[w], x);
#pragma unroll
          for (int r = 0; r < kGemvRows; ++r) {
            float y[2];
            unpack_word<T>(weights[step][r].words[w], y);
            float& sum = sums[r * kBatch + i];
            sum = fmaf(x[1], y[1], fmaf(x[0], y[0], sum));
          }
        }
      }
    }
  }

  // In the order of lanes and warps, which is always the same.
  constexpr int kWarps = kThreads / 32;
  __shared__ float partials[kWarps][kCount];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float sum = sum_lanes<kCount>(sums);
  if (lane % (32 / kCount) == 0) partials[warp][lane / (32 / kCount)] = sum;
  __syncthreads();
  if (threadIdx.x < kCount) {
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += partials[w][threadIdx.x];
    const int row = threadIdx.x / kBatch, col = threadIdx.x % kBatch;
    if (row < rows && col < m) out[col * n + first + row] = from_float<T>(total);
  }
}
