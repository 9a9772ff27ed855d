// matmul on the tensor cores of any GPU from sm_80 on, for 16-bit operands.
//
// What it adds to matmul_tiled:
// 1. Products are the tensor cores' (mma.sync), 16 x 8 x 16 a warp's instruction.
// 2. Stages of both operands go through a ring in shared memory that cp.async fills, past the
//    registers: kStages - 2 of them are on their way while one is multiplied.
// 3. They wait as they are stored, in 16 bits: ldmatrix hands out the fragments, transposed where
//    neighbours of b follow n. 16-byte packs are swizzled, so that neither it nor the copies meet a
//    bank twice.
// 4. A warp has two sets of fragments: while the tensor cores work on one, the next are read.
//
// Shared memory is what limits it: for every 16 steps of k a warp reads its rows and its columns,
// 32 bytes each. A warp of 64 x 64 so has 1.5 times the products a byte of one of 64 x 32.
#pragma once

#include "async_copies.cuh"
#include "packs.cuh"
#include "warp_mma.cuh"

// Blocks at work at a time share what they read through L2: tiles are taken in bands of this many
// rows. 132 blocks with 128 x 256 each then read 2048 rows and about as many columns, the least.
constexpr int kMmaBand = 16;

// A box of a matrix in shared memory, kRows x kCols elements of 16 bits, and how kThreads copy it.
template <int kRows, int kCols, int kThreads>
struct MmaBox {
  static constexpr int kBytes = kRows * kCols * 2;
  static constexpr int kRowPacks = kCols / 8;  // of 16 bytes
  static constexpr int kRowBytes = kCols * 2;
  // A thread has one column of packs: its first row and every kJump-th after it.
  static constexpr int kJump = kThreads / kRowPacks;
  static constexpr int kPasses = kRows / kJump;
  static_assert(kThreads % kRowPacks == 0 && kRows % kJump == 0, "threads have equal shares");
  // Eight rows' packs of one column, as ldmatrix reads them, must lie in different banks: rows of
  // 128 bytes or more differ in 8 ways, and the two rows of 64 that share 128 bytes not at all.
  static constexpr int kAlike = kRowPacks < 8 ? 8 / kRowPacks : 1;
  static constexpr int kWays = kRowPacks < 8 ? kRowPacks : 8;
  static_assert(kWays * kAlike == 8, "a row is 16 to 128 bytes, or a multiple of 128");

  static __device__ __forceinline__ int place(int row, int pack) {
    return row * kRowBytes + (pack ^ row / kAlike % kWays) * 16;
  }
  static __device__ __forceinline__ int first_row() { return threadIdx.x / kRowPacks; }
  static __device__ __forceinline__ int pack() { return threadIdx.x % kRowPacks; }

  // to: the box; from: what this thread's first pack starts with, in rows `stride` apart; rows,
  // cols: of the box, that exist. Zeros stand for the others, of which none is read.
  template <typename T>
  static __device__ __forceinline__ void copy(unsigned to, const T* from, int64 stride, int rows,
                                              int cols) {
    const int bytes = min(max(cols - pack() * 8, 0), 8) * 2;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = first_row() + i * kJump;
      copy_async_part(to + place(row, pack()), from + i * kJump * stride, row < rows ? bytes : 0);
    }
  }
};

// Where things lie in shared memory. kTileM x kTileN: of the output, a block; kDepth: steps of k in
// a stage; kWarpsM x kWarpsN: warps that share out the tile.
template <int kTileM, int kTileN, int kDepth, int kStages, int kWarpsM, int kWarpsN>
struct MmaShared {
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kWarpRows = kTileM / kWarpsM;
  static constexpr int kWarpCols = kTileN / kWarpsN;
  static constexpr int kBytesA = kTileM * kDepth * 2;
  static constexpr int kStageBytes = (kTileM + kTileN) * kDepth * 2;
  static constexpr int kRingBytes = kStages * kStageBytes;
  // The output's tile takes the place of the ring, which nobody needs by then.
  using Out = MmaBox<kTileM, kTileN, kThreads>;
  static constexpr int kBytes = kRingBytes > Out::kBytes ? kRingBytes : Out::kBytes;
  static_assert(kWarpRows % 16 == 0 && kWarpCols % 16 == 0, "a warp reads 16 of either at a time");
  static_assert(kDepth % 32 == 0, "a stage has two sets of fragments or more");
  static_assert(kStages >= 3, "one stage is filled while two are read");
};

// a: [m, k], rows a_stride apart. b: [k, n], rows b_stride apart, or with kWeight the transpose of
// [n, k], whose rows are b_stride apart. All rows of a and of what is stored of b start at
// multiples of 16 bytes. kResident: blocks a multiprocessor for which registers must suffice.
template <typename T, int kTileM, int kTileN, int kDepth, int kStages, int kWarpsM, int kWarpsN,
          int kResident, bool kWeight>
__global__ void __launch_bounds__(32 * kWarpsM * kWarpsN, kResident)
    matmul_mma_kernel(const T* __restrict__ a, const T* __restrict__ b,
                      T* __restrict__ out,  // [m, n]
                      int64 m, int64 n, int64 k, int64 a_stride, int64 b_stride) {
  using Shared = MmaShared<kTileM, kTileN, kDepth, kStages, kWarpsM, kWarpsN>;
  using BoxA = MmaBox<kTileM, kDepth, Shared::kThreads>;
  using BoxB = MmaBox<kWeight ? kTileN : kDepth, kWeight ? kDepth : kTileN, Shared::kThreads>;
  extern __shared__ __align__(128) unsigned char mma_memory[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(mma_memory));

  // ------------------------------------------------------------------ this block's tile
  const int64 tiles_m = (m + kTileM - 1) / kTileM, tiles_n = (n + kTileN - 1) / kTileN;
  const int64 band = block_number() / (kMmaBand * tiles_n) * kMmaBand;  // its first row of tiles
  if (band >= tiles_m) return;
  const int64 within = block_number() - band * tiles_n;
  const int64 height = min(tiles_m - band, int64{kMmaBand});
  if (within >= height * tiles_n) return;
  const int64 y = (band + within % height) * kTileM;
  const int64 x = within / height * kTileN;
  const int rows = static_cast<int>(min(m - y, int64{kTileM}));
  const int cols = static_cast<int>(min(n - x, int64{kTileN}));

  // ------------------------------------------------------------------ filling the ring
  const T* of_a = a + (y + BoxA::first_row()) * a_stride + BoxA::pack() * 8;
  const T* of_b = b + BoxB::pack() * 8 +
                  (kWeight ? (x + BoxB::first_row()) * b_stride : BoxB::first_row() * b_stride + x);
  int64 ahead = k;  // steps of k that no stage has got yet
  const auto fetch = [&](int slot) {
    if (ahead > 0) {
      const int depth = static_cast<int>(min(ahead, int64{kDepth}));
      const unsigned stage = shared + slot * Shared::kStageBytes;
      BoxA::copy(stage, of_a, a_stride, rows, depth);
      BoxB::copy(stage + Shared::kBytesA, of_b, b_stride, kWeight ? cols : depth,
                 kWeight ? depth : cols);
      of_a += kDepth;
      of_b += kWeight ? kDepth : kDepth * b_stride;
      ahead -= kDepth;
    }
    // Even where nothing was left to copy: groups are what is counted.
    commit_copies();
  };

  // ------------------------------------------------------------------ reading fragments
  constexpr int kGroupsM = Shared::kWarpRows / 16;
  constexpr int kGroupsN = Shared::kWarpCols / 16;
  constexpr int kInner = kDepth / 16;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int warp_row = warp / kWarpsN * Shared::kWarpRows;
  const int warp_col = warp % kWarpsN * Shared::kWarpCols;
  unsigned left[2][kGroupsM][4], right[2][kGroupsN][4];
  // Of the stage's steps 16 inner to 16 inner + 15.
  const auto read = [&](int set, unsigned stage, int inner) {
#pragma unroll
    for (int i = 0; i < kGroupsM; ++i) {
      load_matrices(left[set][i],
                    stage + BoxA::place(warp_row + i * 16 + lane % 16, inner * 2 + lane / 16));
    }
#pragma unroll
    for (int j = 0; j < kGroupsN; ++j) {
      // 16 columns: of the first eight, steps 0 to 7 and 8 to 15, then of the others.
      const int col = warp_col + j * 16;
      const unsigned box = stage + Shared::kBytesA;
      if constexpr (kWeight) {
        load_matrices(right[set][j],
                      box + BoxB::place(col + lane / 16 * 8 + lane % 8, inner * 2 + lane / 8 % 2));
      } else {
        load_transposed(right[set][j],
                        box + BoxB::place(inner * 16 + lane % 16, col / 8 + lane / 16));
      }
    }
  };

  // ------------------------------------------------------------------ multiplying
  float sums[kGroupsM][2 * kGroupsN][4] = {};
// Not unrolled: code that runs once is code that is fetched for that.
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) fetch(i);
  wait_for_copies<kStages - 2>();
  __syncthreads();
  read(0, shared, 0);
  int slot = 0;  // that is read
  for (int64 steps = k; steps > 0; steps -= kDepth) {
    // This thread's copies of the next stage have come; after the barrier all threads', and all
    // have read the stage before, which is the one that is filled next. That is a stage more than
    // the first products ask for. But with the barrier before the last 16 steps the compiler moved
    // nearly all products before it, and the tensor cores then waited for the fragments after it.
    wait_for_copies<kStages - 3>();
    __syncthreads();
    const int before = slot == 0 ? kStages - 1 : slot - 1;
    const unsigned stage = shared + slot * Shared::kStageBytes;
    slot = slot + 1 == kStages ? 0 : slot + 1;
#pragma unroll
    for (int inner = 0; inner < kInner; ++inner) {
      if (inner + 1 < kInner) {
        read((inner + 1) % 2, stage, inner + 1);
      } else {
        // Past the last stage what is read is never multiplied.
        read((inner + 1) % 2, shared + slot * Shared::kStageBytes, 0);
      }
      // Not before the first read: reads and copies stay in order, and what is read for the next
      // products would come only after all the copies' addresses.
      if (inner == 0) fetch(before);
#pragma unroll
      for (int i = 0; i < kGroupsM; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * kGroupsN; ++j) {
          const unsigned (&words)[4] = right[inner % 2][j / 2];
          multiply_add<T>(sums[i][j], left[inner % 2][i], words[j % 2 * 2], words[j % 2 * 2 + 1]);
        }
      }
    }
  }

  // ------------------------------------------------------------------ writing the tile
  // Through shared memory: a fragment has two neighbours of a row, a store wants eight.
  using Out = typename Shared::Out;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kGroupsM; ++i) {
#pragma unroll
    for (int j = 0; j < 2 * kGroupsN; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row + i * 16 + half * 8 + lane / 4;
        const int place = Out::place(row, warp_col / 8 + j) + lane % 4 * 4;
        *reinterpret_cast<unsigned*>(mma_memory + place) = pack_word<T>(&sums[i][j][half * 2]);
      }
    }
  }
  __syncthreads();
  const int there = cols - Out::pack() * 8;  // elements of the row from this thread's pack on
  T* to = out + (y + Out::first_row()) * n + x + Out::pack() * 8;
  const auto address = reinterpret_cast<unsigned long long>(out);
  const bool aligned = (address | static_cast<unsigned long long>(n) * sizeof(T)) % 16 == 0;
#pragma unroll 4
  for (int i = 0; i < Out::kPasses; ++i) {
    const int row = Out::first_row() + i * Out::kJump;
    if (row >= rows || there <= 0) break;
    const unsigned char* const from = mma_memory + Out::place(row, Out::pack());
    if (aligned) {  // so that n is a multiple of eight, and no pack is cut
      store_once(to, *reinterpret_cast<const Pack<T>*>(from));
    } else {
      for (int e = 0; e < min(there, 8); ++e) to[e] = reinterpret_cast<const T*>(from)[e];
    }
    to += Out::kJump * n;
  }
}
