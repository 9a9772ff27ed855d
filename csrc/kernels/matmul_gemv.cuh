// matmul for one to four rows of a and a weight [N, K]: no tensor cores, no shared memory in the
// loop. All that counts is that the weight's bytes never stop coming, so, beside matmul_tiled:
//
// 1. Every weight goes from memory to the registers of the one thread that needs it, 16 bytes a
//    load, 512 bytes of a row side by side a warp. L1 is left to a.
// 2. A thread has kGemvDepth steps of four rows in registers: it multiplies one while the others
//    are on their way, also past the end of its rows: sums are added up while memory works.
// 3. The warps of a block share out k where rows are long: a block then asks for 4 KB of a row at a
//    time, and a few thousand rows are enough for all multiprocessors.
// 4. Blocks stay, and all have the same number of rows, or one more: there is no last, half empty
//    wave. Sums are added in the order of lanes and warps, which is always the same.
#pragma once

#include "even_tiles.cuh"
#include "packs.cuh"

constexpr int kGemvThreads = 256;
constexpr int kGemvRows = 4;  // at most, of the weight, that a step takes
// Steps in registers. Two blocks a multiprocessor leave a thread 128 of them; a step holds a pack
// for each row of the weight and of a. Of the weight, 96 KB a multiprocessor stay on their way for
// one row of a, 64 for two, 32 for four.
template <int kBatch>
constexpr int kGemvDepth = kBatch == 1   ? 4
                           : kBatch == 2 ? 3
                                         : 2;

template <typename T, int kBatch>
struct GemvStep {
  Pack<T> weights[kGemvRows];
  Pack<T> rows[kBatch];  // of a
};

// Sixteen bytes where `there`, else anything, without a branch: loads in a row stay in a row.
// kOnce: they take no place in L1.
template <bool kOnce, typename T>
__device__ __forceinline__ Pack<T> load_where(const T* from, bool there) {
  Pack<T> pack;
  if constexpr (kOnce) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %5, 0;\n\t"
        "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
        : "=r"(pack.words[0]), "=r"(pack.words[1]), "=r"(pack.words[2]), "=r"(pack.words[3])
        : "l"(from), "r"(static_cast<int>(there)));
  } else {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %5, 0;\n\t"
        "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
        : "=r"(pack.words[0]), "=r"(pack.words[1]), "=r"(pack.words[2]), "=r"(pack.words[3])
        : "l"(from), "r"(static_cast<int>(there)));
  }
  return pack;
}

// A pack of which only the first `left` elements exist.
template <typename T>
__device__ __forceinline__ Pack<T> load_part(const T* from, int left) {
  return gather<T>([&](int i) { return i < left ? from[i] : from_float<T>(0.0f); });
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

// a: [m, k], m <= kBatch, rows a_stride apart; b: [n, k], rows b_stride apart. kVector: all rows
// start at multiples of 16 bytes, and k is a multiple of 8. tiles: of at most kGemvRows rows of b.
// kSplit: warps that share a tile, 1 or all of the block.
template <typename T, int kBatch, int kSplit, bool kVector>
__global__ void __launch_bounds__(kGemvThreads, 2)
    matmul_gemv_kernel(const T* __restrict__ a, const T* __restrict__ b,
                       T* __restrict__ out,  // [m, n]
                       int m, int64 n, int64 k, int64 a_stride, int64 b_stride, int64 tiles,
                       int64 each, int64 longer) {
  static_assert(sizeof(T) == 2, "a pack is taken to be eight elements");
  constexpr int kWarps = kGemvThreads / 32;
  static_assert(kSplit == 1 || kSplit == kWarps, "a team of warps meets at the block's barrier");
  constexpr int kSize = Pack<T>::kSize;
  // Rows at any address come element by element; there are loads enough in one step of that.
  constexpr int kDepth = kVector ? kGemvDepth<kBatch> : 1;
  constexpr int kSpan = kSplit * 32 * kSize;  // of k, a step
  constexpr int kCount = kGemvRows * kBatch;
  const EvenTiles share{tiles, each, longer};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64 teams = static_cast<int64>(gridDim.x) * (kWarps / kSplit);
  const int64 team = static_cast<int64>(blockIdx.x) * (kWarps / kSplit) + warp / kSplit;
  const int steps = static_cast<int>((k + kSpan - 1) / kSpan);
  // The thread's first place in k, and in how many steps it has one. In the last it may have none,
  // and then multiplies nothing. Rows that a tile or a lacks it does multiply, whatever its
  // registers hold: those sums are not stored.
  const int64 start = (warp % kSplit * 32 + lane) * kSize;
  const int own_steps = static_cast<int>((k - start + kSpan - 1) / kSpan);

  // The next load: where in k, and in its tile's first row of the weight.
  int64 ahead_tile = team;
  int64 at = start;
  int ahead_step = 0, rows = 0;
  const T* weights = b;
  const auto enter = [&] {
    rows = share.rows(ahead_tile);
    weights = b + share.first(ahead_tile) * b_stride;
  };
  if (ahead_tile < tiles) enter();
  const auto load = [&](GemvStep<T, kBatch>& step) {
    if (ahead_tile >= tiles) return;
    // a first: it is in L1, and not to wait behind what comes from memory.
    if constexpr (kVector) {
      const bool inside = ahead_step < own_steps;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        step.rows[i] = load_where<false>(a + i * a_stride + at, inside && i < m);
      }
#pragma unroll
      for (int r = 0; r < kGemvRows; ++r) {
        step.weights[r] = load_where<true>(weights + r * b_stride + at, inside && r < rows);
      }
    } else {
      const int left = static_cast<int>(min(k - at, int64{kSize}));
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        step.rows[i] = load_part(a + i * a_stride + at, i < m ? left : 0);
      }
#pragma unroll
      for (int r = 0; r < kGemvRows; ++r) {
        step.weights[r] = load_part(weights + r * b_stride + at, r < rows ? left : 0);
      }
    }
    at += kSpan;
    if (++ahead_step == steps) {
      ahead_step = 0;
      at = start;
      ahead_tile += teams;
      if (ahead_tile < tiles) enter();
    }
  };

  float sums[kCount] = {};
  const auto multiply = [&](const GemvStep<T, kBatch>& step) {
  // A word of each at a time: few floats are alive at once.
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float of_a[kBatch][2];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) unpack_word<T>(step.rows[i].words[w], of_a[i]);
#pragma unroll
      for (int r = 0; r < kGemvRows; ++r) {
        float of_b[2];
        unpack_word<T>(step.weights[r].words[w], of_b);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          float& sum = sums[r * kBatch + i];
          sum = fmaf(of_a[i][1], of_b[1], fmaf(of_a[i][0], of_b[0], sum));
        }
      }
    }
  };

  // Two, taken in turn: when a warp writes one again, all have passed the barrier after which the
  // other was read, and so have read this one.
  __shared__ float partials[2][kWarps][kCount];
  int turn = 0;
  const auto finish = [&](int64 tile) {
    const auto store = [&](int index, float sum) {
      const int row = index / kBatch, col = index % kBatch;
      if (row < share.rows(tile) && col < m) {
        out[col * n + share.first(tile) + row] = from_float<T>(sum);
      }
    };
    const float sum = sum_lanes<kCount>(sums);
    const bool holds = lane % (32 / kCount) == 0;
    const int index = lane / (32 / kCount);
    if constexpr (kSplit == 1) {
      if (holds) store(index, sum);
    } else {
      if (holds) partials[turn][warp][index] = sum;
      __syncthreads();
      if (threadIdx.x < kCount) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) total += partials[turn][w][threadIdx.x];
        store(threadIdx.x, total);
      }
      turn ^= 1;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] = 0.0f;
  };

  GemvStep<T, kBatch> ring[kDepth];
#pragma unroll
  for (int i = 0; i < kDepth - 1; ++i) load(ring[i]);
  int64 tile = team;
  int step = 0;
  while (tile < tiles) {
    // Unrolled, so that the ring is registers and none of them is copied: a copy would wait for its
    // load.
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      if (tile >= tiles) break;
      load(ring[(i + kDepth - 1) % kDepth]);
      if (step < own_steps) multiply(ring[i]);
      if (++step == steps) {
        finish(tile);
        step = 0;
        tile += teams;
      }
    }
  }
}
