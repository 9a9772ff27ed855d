// matmul for up to 64 rows of a and a weight [N, K], through wgmma, at the rate of memory.
//
// What it adds to matmul_decode, whose warps fetch every fragment through registers and whose
// blocks stay to the end:
// 1. wgmma takes both operands from shared memory, with the weight's rows as its 64 and a's as its
//    columns: a warp's work on a stage is four instructions.
// 2. The TMA fills the ring, for one thread's work a stage. Two blocks or more share a
//    multiprocessor: while one starts, or adds up, the other's copies keep memory at work.
// 3. A block has one tile and goes. There are more blocks than places, and whoever is done takes
//    the next: multiprocessors that memory serves more slowly do fewer.
// 4. Where the weight has too few tiles for that, kSplits blocks of a cluster share out k. Each
//    finishes some rows of a, for which the others send it their sums; it adds them up in the order
//    of ranks. Sent, not fetched: what makes stores visible to a cluster's barrier is a fence that
//    waits for the whole device, and nobody has to stay until others have read.
#pragma once

#include "clusters.cuh"
#include "hopper.cuh"

// Where things lie in shared memory, and who does what. kRows: of the weight, a tile; kBatch: rows
// of a, at most.
template <int kRows, int kBatch, int kStages, int kSplits>
struct SkinnyShared {
  static constexpr int kWarps = kRows / 16;      // that multiply, four to every 64 rows
  static constexpr int kProducer = 32 * kWarps;  // the thread that copies
  static constexpr int kThreads = kProducer + 32;
  // Blocks that a multiprocessor has registers for: the instruction for 64 rows of a wants 58.
  static constexpr int kResident = kThreads <= 512 ? 2 : 1;
  static constexpr int kDepth = 64;  // steps of k in a stage: a swizzled row
  static constexpr int kWeightBytes = kRows * kSwizzleRow;
  static constexpr int kStageBytes = kWeightBytes + kBatch * kSwizzleRow;
  // This block's sums take the ring's place: [kBatch][kPitch] floats. Four of padding: lanes t * 2
  // rows of a apart are then 8 banks apart, and rows start at multiples of 16 bytes.
  static constexpr int kPitch = kRows + 4;
  static constexpr int kSumsBytes = kBatch * kPitch * 4;
  // The cluster's sums of this block's rows of a: [kSplits][kShare][kPitch] floats, beside the
  // ring: a block that is done needn't know whether the others are.
  static constexpr int kShare = kBatch / kSplits;
  static constexpr int kSentOffset = kStages * kStageBytes;
  static constexpr int kFullOffset = kSentOffset + (kSplits > 1 ? kSumsBytes : 0);
  static constexpr int kEmptyOffset = kFullOffset + kStages * 8;
  static constexpr int kAllSentOffset = kEmptyOffset + kStages * 8;
  // With room to start at a multiple of kSwizzlePeriod.
  static constexpr int kBytes = kAllSentOffset + 8 + kSwizzlePeriod;
  static_assert(kRows % 64 == 0 && kRows <= 256, "a warpgroup has 64 rows, a box up to 256");
  static_assert(kBatch % kSplits == 0, "each block finishes as many rows of a");
  static_assert(kSumsBytes <= kSentOffset, "the ring has room for the sums");
};

// a: [m, k], m <= kBatch, in boxes of [kBatch, 64]; weight: [n, k], in boxes of [kRows, 64]. The
// grid has kSplits blocks for every kRows rows of the weight.
//
// What boxes lack of rows or of k comes as zeros, which change no sum.
template <typename T, int kRows, int kBatch, int kStages, int kSplits>
__global__ void CLUSTER_SIZE(kSplits)
    __launch_bounds__(SkinnyShared<kRows, kBatch, kStages, kSplits>::kThreads,
                      SkinnyShared<kRows, kBatch, kStages, kSplits>::kResident)
        matmul_skinny_kernel(const __grid_constant__ TensorMap map_a,
                             const __grid_constant__ TensorMap map_weight,
                             T* __restrict__ out,  // [m, n]
                             int m, int n, int k) {
#ifdef HAS_WGMMA
  using Shared = SkinnyShared<kRows, kBatch, kStages, kSplits>;
  extern __shared__ unsigned char skinny_memory[];
  const unsigned start = shared_address(skinny_memory);
  const unsigned shared = (start + kSwizzlePeriod - 1) / kSwizzlePeriod * kSwizzlePeriod;
  const unsigned full = shared + Shared::kFullOffset;
  const unsigned empty = shared + Shared::kEmptyOffset;
  const unsigned all_sent = shared + Shared::kAllSentOffset;
  const int rank = kSplits > 1 ? cluster_rank() : 0;
  const int first_row = static_cast<int>(blockIdx.x) / kSplits * kRows;
  // This block's share of k; none of it where there are fewer steps than blocks.
  const int all_steps = (k + Shared::kDepth - 1) / Shared::kDepth;
  const int begin = all_steps * rank / kSplits;
  const int steps = all_steps * (rank + 1) / kSplits - begin;
  // Blocks of a cluster take turns at the rows of a: all of them finish some.
  const int own_rows = (m - rank + kSplits - 1) / kSplits;

  // ------------------------------------------------------------------ filling the ring
  const bool producer = threadIdx.x == Shared::kProducer;
  const unsigned long long once = evict_first();
  const auto load = [&](int step, int stage) {
    const unsigned barrier = full + 8 * stage;
    const unsigned to = shared + stage * Shared::kStageBytes;
    const int column = (begin + step) * Shared::kDepth;
    mbarrier_expect(barrier, Shared::kStageBytes);
    tma_load_hinted(to, map_weight, column, first_row, barrier, once);
    // Every tile reads it again: L2 is to keep it.
    tma_load(to + Shared::kWeightBytes, map_a, column, 0, barrier);
  };
  if (producer) {
    tma_prefetch(map_weight);
    tma_prefetch(map_a);
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(full + 8 * i, 1);
      mbarrier_init(empty + 8 * i, Shared::kWarps);
    }
    if constexpr (kSplits > 1) {
      mbarrier_init(all_sent, 1);
      mbarrier_init_fence();
    }
    // Who made them can load at once; other threads wait at the barriers below.
    async_proxy_fence();
#pragma unroll 1
    for (int step = 0; step < min(steps, kStages); ++step) load(step, step);
    if constexpr (kSplits > 1) mbarrier_expect(all_sent, kSplits * own_rows * kRows * 4);
  }
  __syncthreads();
  if constexpr (kSplits > 1) {
    // Others may send from now on. The first loads are under way.
    cluster_started();
    cluster_wait_started();
  }

  Ring<kStages> ring;
  if (threadIdx.x >= Shared::kProducer) {
    if (producer) {
#pragma unroll 1
      for (int step = kStages; step < steps; ++step) {
        mbarrier_wait(empty + 8 * ring.stage, ring.parity);
        load(step, ring.stage);
        ring.advance();
      }
    }
    return;
  }

  // ------------------------------------------------------------------ multiplying
  const int lane = threadIdx.x % 32;
  const int group = threadIdx.x / 128 * 64 * kSwizzleRow;  // the warpgroup's rows, in a stage
  float sums[kBatch / 2];
#pragma unroll
  for (int i = 0; i < kBatch / 2; ++i) sums[i] = 0.0f;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const unsigned from = shared + ring.stage * Shared::kStageBytes;
    const auto rows = operand_descriptor(from + group, 0, kSwizzlePeriod);
    const auto batch = operand_descriptor(from + Shared::kWeightBytes, 0, kSwizzlePeriod);
    mbarrier_wait(full + 8 * ring.stage, ring.parity);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Shared::kDepth / 16; ++i) {
      // 16 steps of k: 32 bytes along a row.
      wgmma<T, kBatch, false>(sums, rows + i * (32 >> 4), batch + i * (32 >> 4), 1);
    }
    wgmma_commit();
    // Unlike matmul_wgmma's, these tensor cores have time: what counts is that the stage is given
    // back at once, and not when the next one has come.
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(empty + 8 * ring.stage);
    ring.advance();
  }
  wgmma_results(sums);

  // ------------------------------------------------------------------ adding up
  // All that was to come has come, since this warp has waited for it; and all warps have read it.
  named_barrier(1, Shared::kProducer);
  float* const partials = reinterpret_cast<float*>(skinny_memory + (shared - start));
  float* const mine = partials + lane % 4 * 2 * Shared::kPitch + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < kBatch / 2; ++i) {
    mine[(i / 4 * 8 + i % 2) * Shared::kPitch + i / 2 % 2 * 8] = sums[i];
  }
  named_barrier(1, Shared::kProducer);

  // A thread has four neighbours of every eighth row.
  constexpr int kQuads = kRows / 4;
  static_assert(Shared::kProducer == 8 * kQuads && 8 % kSplits == 0);
  const int row = threadIdx.x / kQuads, quad = threadIdx.x % kQuads * 4;
  const float* added = partials;
  if constexpr (kSplits > 1) {
    float4 values[kBatch / 8];
#pragma unroll
    for (int i = 0; i < kBatch / 8; ++i) {
      values[i] =
          *reinterpret_cast<const float4*>(partials + (row + 8 * i) * Shared::kPitch + quad);
    }
    const unsigned to = shared + Shared::kSentOffset + quad * 4;
#pragma unroll
    for (int i = 0; i < kBatch / 8; ++i) {
      const int place = rank * Shared::kShare + (row + 8 * i) / kSplits;
      if (row + 8 * i < m) {
        send_four(to + place * Shared::kPitch * 4, values[i], all_sent, row % kSplits);
      }
    }
    wait_for_sent(all_sent, 0);
    added = partials + Shared::kSentOffset / 4;
  }
  const int column = first_row + quad;
  const bool whole = n % 4 == 0 && reinterpret_cast<size_t>(out) % (4 * sizeof(T)) == 0;
  if (column >= n) return;
#pragma unroll 1
  for (int own_row = row; own_row < own_rows; own_row += 8) {
    float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int split = 0; split < kSplits; ++split) {
      const int place = (split * Shared::kShare + own_row) * Shared::kPitch + quad;
      const float4 part = *reinterpret_cast<const float4*>(added + place);
      total[0] += part.x;
      total[1] += part.y;
      total[2] += part.z;
      total[3] += part.w;
    }
    T* const to = out + static_cast<int64>(own_row * kSplits + rank) * n + column;
    if (whole) {
      *reinterpret_cast<uint2*>(to) = make_uint2(pack_word<T>(total), pack_word<T>(total + 2));
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (column + e < n) to[e] = from_float<T>(total[e]);
      }
    }
  }
#else
  // No wgmma in this build for this device: rather no result than a wrong one.
  __trap();
#endif
}
