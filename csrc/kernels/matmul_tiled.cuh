// matmul on the CUDA cores of any GPU: tiles in shared memory, a block of the output in registers.
//
// A block of 256 threads computes a square tile of the output, 16 steps of k at a time. Both
// operands wait in shared memory as floats with k outermost, so that a thread's reads are 16 bytes
// wide; the next 16 steps are on their way from global memory meanwhile.
#pragma once

#include "packs.cuh"

constexpr int kTiledThreads = 256;
constexpr int kTiledDepth = 16;

// One operand's tile: kTile lines (rows of a, or columns of b) of kTiledDepth steps of k each.
// kAlongK: neighbours in memory follow k; else they follow the lines.
template <typename T, int kTile, bool kAlongK>
struct OperandTile {
  static constexpr int kSize = Pack<T>::kSize;
  static constexpr int kPacks = kTile * kTiledDepth / kSize;  // of the whole tile
  static constexpr int kShare = (kPacks + kTiledThreads - 1) / kTiledThreads;
  // Packs side by side in memory, and what lies between one of a thread's packs and its next: so
  // many lines (kAlongK) or steps.
  static constexpr int kAbreast = (kAlongK ? kTiledDepth : kTile) / kSize;
  static constexpr int kJump = kTiledThreads / kAbreast;
  // Four floats of padding: lines stay 16-byte aligned, and stores along k spread over the banks.
  using Shared = float[kTiledDepth][kTile + 4];

  int line, step;  // of the tile, where the thread's first pack starts
  const T* from;   // that pack
  int64 stride;    // elements from one line (kAlongK) or step to the next
  int lines_left;  // of the tile, that the operand has from there on
  bool aligned;
  Pack<T> packs[kShare];

  // data: the operand's first element; first: the tile's first line
  __device__ __forceinline__ OperandTile(const T* data, int64 stride, int64 first, int64 lines)
      : stride(stride) {
    const int along = threadIdx.x % kAbreast * kSize;
    const int across = threadIdx.x / kAbreast;
    line = kAlongK ? across : along;
    step = kAlongK ? along : across;
    lines_left = static_cast<int>(min(lines - first, int64{kTile})) - line;
    from = data + (kAlongK ? (first + across) * stride + along : across * stride + first + along);
    const auto address = reinterpret_cast<unsigned long long>(data);
    aligned = (address | static_cast<unsigned long long>(stride) * sizeof(T)) % 16 == 0;
  }

  // Whether the thread's i-th pack is one: small tiles have fewer packs than threads.
  static __device__ __forceinline__ bool has(int i) {
    return kPacks % kTiledThreads == 0 || threadIdx.x + i * kTiledThreads < kPacks;
  }

  // The next kTiledDepth steps into registers; zero beyond the operand's edges.
  // steps: that the operand has from there on
  __device__ __forceinline__ void load(int64 steps) {
    const int ahead = static_cast<int>(min(steps, int64{kTiledDepth})) - step;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      if (!has(i)) break;
      const T* const start = from + i * kJump * stride;
      // Elements of the pack that exist.
      const int left =
          kAlongK ? (i * kJump < lines_left ? ahead : 0) : (i * kJump < ahead ? lines_left : 0);
      if (aligned && left >= kSize) {
        packs[i] = load_once(start);
      } else {
        packs[i] = gather<T>([&](int e) { return e < left ? start[e] : from_float<T>(0.0f); });
      }
    }
    from += kTiledDepth * (kAlongK ? 1 : stride);
  }

  __device__ __forceinline__ void store(Shared& shared) const {
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      if (!has(i)) break;
      float values[kSize];
      unpack(packs[i], values);
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        if constexpr (kAlongK) {
          shared[step + e][line + i * kJump] = values[e];
        } else {
          shared[step + i * kJump][line + e] = values[e];
        }
      }
    }
  }
};

// a: [m, k], rows a_stride apart. b: [k, n], rows b_stride apart, or with kWeight the transpose of
// [n, k], whose rows are b_stride apart. Each thread has (kTile / 16)^2 entries of the tile, in
// groups of four columns and rows 64 apart, so that a warp's reads of shared memory don't collide.
template <typename T, int kTile, bool kWeight>
__global__ void __launch_bounds__(kTiledThreads, 2)
    matmul_tiled_kernel(const T* __restrict__ a, const T* __restrict__ b,
                        T* __restrict__ out,  // [m, n]
                        int64 m, int64 n, int64 k, int64 a_stride, int64 b_stride) {
  constexpr int kGroups = kTile / 64;
  using TileA = OperandTile<T, kTile, true>;
  using TileB = OperandTile<T, kTile, kWeight>;
  // Two of each: while one is read the next is written, and one barrier a round is enough.
  __shared__ __align__(16) typename TileA::Shared shared_a[2];
  __shared__ __align__(16) typename TileB::Shared shared_b[2];

  const int64 across = (n + kTile - 1) / kTile;
  const int64 row = block_number() / across * kTile;
  const int64 col = block_number() % across * kTile;
  if (row >= m) return;
  const int thread_row = threadIdx.x / 16 * 4;
  const int thread_col = threadIdx.x % 16 * 4;

  TileA tile_a(a, a_stride, row, m);
  TileB tile_b(b, b_stride, col, n);
  float sums[kGroups][4][kGroups][4] = {};
  tile_a.load(k);
  tile_b.load(k);
  int turn = 0;
  for (int64 steps = k; steps > 0; steps -= kTiledDepth) {
    tile_a.store(shared_a[turn]);
    tile_b.store(shared_b[turn]);
    __syncthreads();
    if (steps > kTiledDepth) {
      tile_a.load(steps - kTiledDepth);
      tile_b.load(steps - kTiledDepth);
    }
// Two steps at a time: with more the compiler reads ahead until registers spill.
#pragma unroll 2
    for (int d = 0; d < kTiledDepth; ++d) {
      float4 left[kGroups], right[kGroups];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        left[g] = *reinterpret_cast<const float4*>(&shared_a[turn][d][thread_row + 64 * g]);
        right[g] = *reinterpret_cast<const float4*>(&shared_b[turn][d][thread_col + 64 * g]);
      }
#pragma unroll
      for (int i = 0; i < kGroups * 4; ++i) {
        const float4& four = left[i / 4];
        const float of_a = i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          float (&sum)[4] = sums[i / 4][i % 4][g];
          sum[0] = fmaf(of_a, right[g].x, sum[0]);
          sum[1] = fmaf(of_a, right[g].y, sum[1]);
          sum[2] = fmaf(of_a, right[g].z, sum[2]);
          sum[3] = fmaf(of_a, right[g].w, sum[3]);
        }
      }
    }
    turn ^= 1;
  }

#pragma unroll
  for (int i = 0; i < kGroups * 4; ++i) {
    const int64 r = row + thread_row + 64 * (i / 4) + i % 4;
#pragma unroll
    for (int j = 0; j < kGroups * 4; ++j) {
      const int64 c = col + thread_col + 64 * (j / 4) + j % 4;
      if (r < m && c < n) out[r * n + c] = from_float<T>(sums[i / 4][i % 4][j / 4][j % 4]);
    }
  }
}
