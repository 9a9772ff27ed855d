// matmul for up to 64 rows of a and a weight [N, K], on the tensor cores, at the rate of memory.
//
// What it adds to matmul_gemv, whose arithmetic grows with the rows of a, and to matmul_wgmma,
// whose tiles are 64 rows of a high and too few:
// 1. Operands are swapped: the weight's rows are the tensor cores' 16, a's rows their 8 columns, so
//    that 8 rows of a cost 8.
// 2. The weight goes through a ring of kStages stages of 16 KB in shared memory, filled by
//    cp.async: 48 to 144 KB on their way a multiprocessor, twice what memory's latency asks for.
//    cp.async, not the TMA: no tensor map to fetch before the first byte, and no more than a
//    predicate where a row ends.
// 3. The ring goes on from tile to tile, so that sums are added up while memory works; and every
//    block has the same number of rows, or one more.
// 4. The warps of a block share out a stage's k, and add up in shared memory in the order of warps.
//    So a tile can be 32 rows low with eight warps at work.
// 5. Rows of a come from L2 for every tile: m / (rows of the tile) times the weight's bytes. More
//    rows of a so ask for higher tiles; where the weight has too few rows for those, kSplits blocks
//    of a cluster share out k, and add up through each other's shared memory in their order.
#pragma once

#include "async_copies.cuh"
#include "clusters.cuh"
#include "even_tiles.cuh"
#include "packs.cuh"
#include "warp_mma.cuh"

constexpr int kDecodeThreads = 256;

// Where things lie in shared memory, and who does what. kRows: of the weight, a tile; kBatch: rows
// of a, at most.
template <int kRows, int kBatch, int kStages>
struct DecodeShared {
  static constexpr int kGroups = kRows / 32;                     // of 32 rows, a warp each
  static constexpr int kSlices = kDecodeThreads / 32 / kGroups;  // of a stage's k
  static constexpr int kDepth = 32 * kSlices;                    // steps of k in a stage
  static constexpr int kRowBytes = kDepth * 2;                   // of a stage
  static constexpr int kRowPacks = kDepth / 8;
  static constexpr int kBatchOffset = kRows * kRowBytes;  // in a stage
  static constexpr int kStageBytes = (kRows + kBatch) * kRowBytes;
  // Sums: [kSlices][kBatch][kPitch] floats. Four of padding: lanes t * 2 rows of a apart are then 8
  // banks apart.
  static constexpr int kPitch = kRows + 4;
  static constexpr int kSumsOffset = kStages * kStageBytes;
  static constexpr int kBytes = kSumsOffset + kSlices * kBatch * kPitch * 4;
  static_assert(kRows * kRowBytes == 16384, "a stage holds 16 KB of the weight");
  static_assert(kStages >= 2, "one stage is filled while another is read");

  // The 16-byte pack of a row, of the weight or of a. Swizzled: eight rows' packs of the same k, as
  // ldmatrix reads them, lie in different banks, and so do a row's, as they are written.
  static __device__ __forceinline__ int place(int row, int pack) {
    return row * kRowBytes + (pack ^ row % 8) * 16;
  }
};

// a: [m, k], m <= kBatch, rows a_stride apart; b: [n, k], rows b_stride apart. kVector: all rows
// start at multiples of 16 bytes, and k is a multiple of 8. tiles: of at most kRows rows of b.
// Blocks of a cluster have the same tiles.
//
// Rows that a tile or a lacks are never loaded: what they hold meets only sums that are not stored.
template <typename T, int kRows, int kBatch, int kStages, int kSplits, bool kVector>
__global__ void CLUSTER_SIZE(kSplits) __launch_bounds__(kDecodeThreads, 1)
    matmul_decode_kernel(const T* __restrict__ a, const T* __restrict__ b,
                         T* __restrict__ out,  // [m, n]
                         int m, int64 n, int64 k, int64 a_stride, int64 b_stride, int64 tiles,
                         int64 each, int64 longer) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using Shared = DecodeShared<kRows, kBatch, kStages>;
  extern __shared__ __align__(128) unsigned char decode_memory[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(decode_memory));
  float* const partials = reinterpret_cast<float*>(decode_memory + Shared::kSumsOffset);
  const EvenTiles share{tiles, each, longer};
  const int rank = kSplits > 1 ? cluster_rank() : 0;
  const int64 first = blockIdx.x / kSplits, clusters = gridDim.x / kSplits;
  const int64 all_steps = (k + Shared::kDepth - 1) / Shared::kDepth;
  const int begin = static_cast<int>(all_steps * rank / kSplits);
  const int end = static_cast<int>(all_steps * (rank + 1) / kSplits);

  // ------------------------------------------------------------------ filling the ring
  // A thread copies one column of packs: its row and every kJump-th after it.
  constexpr int kJump = kDecodeThreads / Shared::kRowPacks;
  static_assert(kJump % 8 == 0, "the swizzle is the same for all of a thread's rows");
  const int pack = threadIdx.x % Shared::kRowPacks;
  const int row = threadIdx.x / Shared::kRowPacks;
  const unsigned to = shared + Shared::place(row, pack);
  const T* const of_a = a + row * a_stride;
  const T* of_b = b;  // the tile's
  int rows = 0;       // that the tile has from there on
  int64 ahead_tile = begin < end ? first : tiles;
  int ahead_step = begin;
  const auto enter = [&] {
    of_b = b + (share.first(ahead_tile) + row) * b_stride;
    rows = share.rows(ahead_tile) - row;
  };
  if (ahead_tile < tiles) enter();
  // 16 bytes of a row, of which the first `left` elements exist.
  const auto copy = [&](unsigned target, const T* from, int left) {
    if constexpr (kVector) {
      copy_async_where(target, from, left > 0);
    } else {
      const Pack<T> found =
          gather<T>([&](int e) { return e < left ? from[e] : from_float<T>(0.0f); });
      *reinterpret_cast<uint4*>(decode_memory + (target - shared)) =
          make_uint4(found.words[0], found.words[1], found.words[2], found.words[3]);
    }
  };
  const auto fetch = [&](int slot) {
    if (ahead_tile < tiles) {
      const int64 at = static_cast<int64>(ahead_step) * Shared::kDepth + pack * 8;
      const int left = static_cast<int>(min(max(k - at, int64{0}), int64{8}));
      // Past a row's end nothing is read, and the address stays within it.
      const int64 column = left > 0 ? at : 0;
      const unsigned stage = to + slot * Shared::kStageBytes;
#pragma unroll
      for (int i = 0; i < kRows / kJump; ++i) {
        if (i * kJump < rows) {
          copy(stage + i * kJump * Shared::kRowBytes, of_b + i * kJump * b_stride + column, left);
        }
      }
      // A pass may have more rows than kBatch, but none from m on is copied.
#pragma unroll
      for (int i = 0; i < (kBatch + kJump - 1) / kJump; ++i) {
        if (row + i * kJump < m) {
          copy(stage + Shared::kBatchOffset + i * kJump * Shared::kRowBytes,
               of_a + i * kJump * a_stride + column, left);
        }
      }
      if (++ahead_step == end) {
        ahead_step = begin;
        ahead_tile += clusters;
        if (ahead_tile < tiles) enter();
      }
    }
    // Even where nothing was left to copy: groups are what is counted.
    commit_copies();
  };

  // ------------------------------------------------------------------ multiplying a stage
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = warp % Shared::kGroups, slice = warp / Shared::kGroups;
  constexpr int kColumns = kBatch / 8;  // of eight rows of a
  float sums[2][kColumns][4];
  const auto multiply = [&](int slot) {
    const unsigned stage = shared + slot * Shared::kStageBytes;
    // A warp's 32 steps of k are four packs. Of the weight: 16 rows, two packs at a time.
    unsigned left[2][2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        load_matrices(left[half][i], stage + Shared::place(group * 32 + i * 16 + lane % 16,
                                                           slice * 4 + half * 2 + lane / 16));
      }
    }
    // Of a: eight rows, all four packs.
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      unsigned right[4];
      load_matrices(right, stage + Shared::kBatchOffset +
                               Shared::place(column * 8 + lane % 8, slice * 4 + lane / 8));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          multiply_add<T>(sums[i][column], left[half][i], right[2 * half], right[2 * half + 1]);
        }
      }
    }
  };

  // ------------------------------------------------------------------ adding up a tile
  const auto finish = [&](int64 tile) {
    float* const mine = partials + slice * kBatch * Shared::kPitch + group * 32 + lane / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          mine[(column * 8 + lane % 4 * 2 + e % 2) * Shared::kPitch + i * 16 + e / 2 * 8] =
              sums[i][column][e];
        }
      }
    }
    if constexpr (kSplits > 1) {
      cluster_sync();
    } else {
      __syncthreads();
    }
    const int tile_rows = share.rows(tile);
    T* const to_tile = out + share.first(tile);
    // Neighbours store neighbours. Blocks of a cluster take turns at the rows of a.
    const int own_rows = (m - rank + kSplits - 1) / kSplits;
    for (int index = threadIdx.x; index < own_rows * kRows; index += kDecodeThreads) {
      const int batch_row = index / kRows * kSplits + rank, tile_row = index % kRows;
      if (tile_row >= tile_rows) continue;
      float total = 0.0f;
#pragma unroll
      for (int split = 0; split < kSplits; ++split) {
#pragma unroll
        for (int s = 0; s < Shared::kSlices; ++s) {
          const int place = (s * kBatch + batch_row) * Shared::kPitch + tile_row;
          if constexpr (kSplits > 1) {
            total += load_from(shared + Shared::kSumsOffset + place * 4, split);
          } else {
            total += partials[place];
          }
        }
      }
      to_tile[batch_row * n + tile_row] = from_float<T>(total);
    }
    // No block writes its next sums, or leaves, while another reads these. Alone, the barrier
    // before the next stage sees to that.
    if constexpr (kSplits > 1) cluster_sync();
  };

  // Not unrolled: code that runs once is code that is fetched for that.
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) fetch(i);
  int slot = 0;
  for (int64 tile = first; tile < tiles; tile += clusters) {
#pragma unroll
    for (int i = 0; i < 2 * kColumns * 4; ++i) sums[i / 4 / kColumns][i / 4 % kColumns][i % 4] = 0;
    for (int step = begin; step < end; ++step) {
      // This thread's copies of the stage have come; after the barrier all threads', and all have
      // read the stage before, which is the one that is filled next.
      wait_for_copies<kStages - 2>();
      __syncthreads();
      fetch(slot == 0 ? kStages - 1 : slot - 1);
      multiply(slot);
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
    finish(tile);
  }
#else
  // No clusters, and not the shared memory: rather no result than a wrong one.
  __trap();
#endif
}
