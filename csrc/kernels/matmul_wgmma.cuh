// matmul on Hopper's tensor cores, for 16-bit operands.
//
// One warpgroup (its first thread) only copies: tiles of a and b, 64 steps of k at a time, into a
// ring of stages. The others only multiply, each 64 rows of the tile, its sums in registers. Blocks
// stay and take one tile of the output after another, so that the copies for the next tile run
// while the last one's sums are written. Two barriers a stage: full, when its bytes have come, and
// empty, when every warp that reads it has. Blocks of a cluster have tiles one above the other and
// so the same columns of b: each copies a share of them, to all.
#pragma once

#include "hopper.cuh"

// The clusters at work at a time share what they read through L2: tiles are taken in groups of this
// many rows (of kCluster tiles each), so that 64 clusters read 8 rows and 8 columns, the least.
constexpr int kGroup = 8;

// Where things lie in shared memory. kTileM x kTileN: of the output, a block.
template <int kTileM, int kTileN, int kStages>
struct WgmmaShared {
  static constexpr int kConsumers = kTileM / 64;  // warpgroups
  static constexpr int kThreads = 128 + 128 * kConsumers;
  static constexpr int kDepth = 64;  // steps of k in a stage: a swizzled row
  static constexpr int kBytesA = kTileM * kSwizzleRow;
  static constexpr int kBytesB = kTileN * kSwizzleRow;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  // Output is written 64 rows x 64 columns at a time. Two of these a consumer, so that one is
  // filled while the other is on its way.
  static constexpr int kChunkBytes = 64 * kSwizzleRow;
  static constexpr int kChunks = kTileN > 64 ? 2 : 1;
  static constexpr int kOutOffset = kStages * kStageBytes;
  static constexpr int kFullOffset = kOutOffset + kConsumers * kChunks * kChunkBytes;
  static constexpr int kEmptyOffset = kFullOffset + kStages * 8;
  // With room to start at a multiple of kSwizzlePeriod.
  static constexpr int kBytes = kEmptyOffset + kStages * 8 + kSwizzlePeriod;
};

#ifdef HAS_WGMMA

struct TilePosition {
  int row, col;  // in tiles; a row is kCluster tiles high
};

// Groups of kGroup rows, column by column.
__device__ __forceinline__ TilePosition tile_position(int index, int rows, int cols) {
  const int first = index / (kGroup * cols) * kGroup;
  const int height = min(rows - first, kGroup);
  const int within = index - first * cols;
  return {first + within % height, within / height};
}

// A consumer's sums (64 x kTileN) through shared memory, in the order of the registers that hold
// them; swizzled, so that neither stmatrix nor the copy meets a bank twice.
// buffers: its own kChunks chunks; barrier: its own named barrier; x, y: its first entry.
template <typename T, typename Shared, int kTileN>
__device__ __forceinline__ void store_chunks(const float (&sums)[kTileN / 2],
                                             const TensorMap& map_out, int x, int y,
                                             unsigned buffers, int barrier) {
  const bool leader = threadIdx.x % 128 == 0;
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
  for (int chunk = 0; chunk < kTileN / 64; ++chunk) {
    const unsigned buffer = buffers + chunk % Shared::kChunks * Shared::kChunkBytes;
    // The buffer's last store must have read it, and only the thread that issued it can know.
    if (leader) tma_store_wait_read<Shared::kChunks - 1>();
    named_barrier(barrier, 128);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = pack_word<T>(&sums[chunk * 32 + pair * 8 + i * 2]);
      }
      const int column = pair * 2 + lane / 16;
      store_matrices(buffer + row * kSwizzleRow + (column ^ row % 8) * 16, words);
    }
    async_proxy_fence();
    named_barrier(barrier, 128);
    if (leader) tma_store(map_out, x + chunk * 64, y, buffer);
  }
}

// The same straight to global memory, for rows that the TMA can't address.
template <typename T, int kTileN>
__device__ __forceinline__ void store_entries(const float (&sums)[kTileN / 2], T* __restrict__ out,
                                              int m, int n, int x, int y) {
  const int lane = threadIdx.x % 32;
  const int row = y + threadIdx.x % 128 / 32 * 16 + lane / 4;
  const int col = x + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kTileN / 2; ++i) {
    const int r = row + i / 2 % 2 * 8;
    const int c = col + i / 4 * 8 + i % 2;
    if (r < m && c < n) out[static_cast<int64>(r) * n + c] = from_float<T>(sums[i]);
  }
}

#endif  // HAS_WGMMA

// a: [m, k], out: [m, n]; b: [k, n], or with kWeight the transpose of [n, k]; the last dimension
// neighbours in memory. Boxes of 64 along it, and kTileM rows of a, kTileN / kCluster of a weight,
// else 64 of b, 64 of out. bulk: whether map_out can be used.
template <typename T, int kTileM, int kTileN, int kStages, int kCluster, bool kWeight>
__global__ void CLUSTER_SIZE(kCluster)
    __launch_bounds__(WgmmaShared<kTileM, kTileN, kStages>::kThreads, kTileM == 64 ? 2 : 1)
        matmul_wgmma_kernel(const __grid_constant__ TensorMap map_a,
                            const __grid_constant__ TensorMap map_b,
                            const __grid_constant__ TensorMap map_out, T* __restrict__ out, int m,
                            int n, int k, int bulk) {
#ifdef HAS_WGMMA
  using Shared = WgmmaShared<kTileM, kTileN, kStages>;
  extern __shared__ unsigned char shared_memory[];
  const unsigned shared =
      (shared_address(shared_memory) + kSwizzlePeriod - 1) / kSwizzlePeriod * kSwizzlePeriod;
  const unsigned full = shared + Shared::kFullOffset;
  const unsigned empty = shared + Shared::kEmptyOffset;

  if (threadIdx.x == 0) {
    tma_prefetch(map_a);
    tma_prefetch(map_b);
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(full + 8 * i, 1);
      // A stage is filled by all blocks of the cluster, so that each waits for the warps of all.
      mbarrier_init(empty + 8 * i, 4 * Shared::kConsumers * kCluster);
    }
    mbarrier_init_fence();
  }
  cluster_sync();

  // Blocks of a cluster do the same tiles in the same order, and with them the same steps: the last
  // row may lie partly or wholly under the output, where reads give zeros and nothing is written.
  const int rank = cluster_rank();
  const int rows = (m + kTileM * kCluster - 1) / (kTileM * kCluster);
  const int cols = (n + kTileN - 1) / kTileN;
  const int steps = (k + Shared::kDepth - 1) / Shared::kDepth;
  const int first = blockIdx.x / kCluster;
  const int clusters = gridDim.x / kCluster;
  Ring<kStages> ring;  // goes on from tile to tile

  if (threadIdx.x < 128) {
    if constexpr (Shared::kConsumers > 1) shrink_registers<24>();
    if (threadIdx.x == 0) {
      for (int index = first; index < rows * cols; index += clusters) {
        const TilePosition tile = tile_position(index, rows, cols);
        const int y = (tile.row * kCluster + rank) * kTileM;
        const int x = tile.col * kTileN;
        for (int step = 0; step < steps; ++step) {
          const unsigned barrier = full + 8 * ring.stage;
          const unsigned to_a = shared + ring.stage * Shared::kStageBytes;
          const unsigned to_b = to_a + Shared::kBytesA;
          mbarrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
          mbarrier_expect(barrier, Shared::kStageBytes);
          tma_load(to_a, map_a, step * Shared::kDepth, y, barrier);
          // This block's share of b: one box of a weight's rows, else boxes of 64 columns.
          constexpr int kBoxes = kWeight ? 1 : kTileN / kCluster / 64;
          constexpr int kBoxBytes = Shared::kBytesB / kCluster / kBoxes;
#pragma unroll
          for (int i = 0; i < kBoxes; ++i) {
            const int box = rank * kBoxes + i;
            const int line = x + box * (kTileN / kCluster / kBoxes);
            const int box_x = kWeight ? step * Shared::kDepth : line;
            const int box_y = kWeight ? line : step * Shared::kDepth;
            if constexpr (kCluster > 1) {
              tma_multicast(to_b + box * kBoxBytes, map_b, box_x, box_y, barrier,
                            (1 << kCluster) - 1);
            } else {
              tma_load(to_b + box * kBoxBytes, map_b, box_x, box_y, barrier);
            }
          }
          ring.advance();
        }
      }
    }
  } else {
    if constexpr (Shared::kConsumers > 1) grow_registers<240>();
    const int consumer = threadIdx.x / 128 - 1;
    const int lane = threadIdx.x % 32;
    const unsigned buffers =
        shared + Shared::kOutOffset + consumer * Shared::kChunks * Shared::kChunkBytes;
    // One lane tells each block of the cluster that this warp has done with the stage.
    const auto release = [&](int stage) {
      if (lane < kCluster) mbarrier_arrive_at(empty + 8 * stage, lane);
    };
    float sums[kTileN / 2];
    for (int index = first; index < rows * cols; index += clusters) {
      int last = 0;
      for (int step = 0; step < steps; ++step) {
        const unsigned from_a = shared + ring.stage * Shared::kStageBytes;
        const unsigned from_b = from_a + Shared::kBytesA;
        // Next 8 rows (of k, without a weight): a period on. Next 64 columns: a box of kDepth rows.
        const auto a = operand_descriptor(from_a + consumer * 64 * kSwizzleRow, 0, kSwizzlePeriod);
        const auto b =
            operand_descriptor(from_b, kWeight ? 0 : Shared::kDepth * kSwizzleRow, kSwizzlePeriod);
        mbarrier_wait(full + 8 * ring.stage, ring.parity);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < Shared::kDepth / 16; ++i) {
          // 16 steps of k: 32 bytes along a row, or 16 rows.
          wgmma<T, kTileN, !kWeight>(sums, a + i * (32 >> 4),
                                     b + i * ((kWeight ? 32 : 16 * kSwizzleRow) >> 4), step | i);
        }
        wgmma_commit();
        // The tensor cores go from one step to the next without a pause: the last step's stage is
        // given back only when this one's work is queued.
        wgmma_wait<1>();
        if (step > 0) release(last);
        last = ring.stage;
        ring.advance();
      }
      wgmma_wait<0>();
      wgmma_results(sums);
      release(last);

      const TilePosition tile = tile_position(index, rows, cols);
      const int y = (tile.row * kCluster + rank) * kTileM + consumer * 64;
      const int x = tile.col * kTileN;
      if (bulk) {
        store_chunks<T, Shared, kTileN>(sums, map_out, x, y, buffers, 1 + consumer);
      } else {
        store_entries<T, kTileN>(sums, out, m, n, x, y);
      }
    }
    // Shared memory must outlive the stores that read it; those are the leaders'.
    tma_store_wait_read<0>();
  }
  // Other blocks' warps arrive at this one's barriers until they end.
  cluster_sync();
#else
  // No wgmma in this build for this device: rather no result than a wrong one.
  __trap();
#endif
}
