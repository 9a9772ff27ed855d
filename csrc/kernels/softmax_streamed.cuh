// softmax, one rung above registers: a row is computed while the next ones are on their way.
//
// A block of `registers` loads, waits, computes, stores and is replaced: it has loads under way for
// about a third of its life. Blocks that share an SM fill each other's gaps. A row of 64 KB or more
// leaves no room for a second block, and then the gaps show: 4.5 us a block on an H200 where memory
// alone would take 4.1, and 5.7 in clusters of eight that start, wait and store together.
//
// Here a block takes several rows in turn. Its threads have their shares of the next kDepth rows on
// their way to shared memory, and hold the current one in registers as before. Memory so waits
// neither for exponentials nor for the exchange, and for a launch once in so many rows. Rows of a
// warp or less gain too: what is under way no longer depends on how many warps happen to wait.
#pragma once

#include "async_copies.cuh"
#include "softmax_cluster.cuh"
#include "softmax_share.cuh"

// Threads a block, of which kThreads share a row.
template <int kThreads>
constexpr int kStreamBlockOf = kThreads <= 32 ? 256 : kThreads;

// Blocks an SM: a long row's block has it for itself, with 128 registers a thread.
template <int kThreads>
constexpr int kStreamResident = kThreads <= 32 ? 4 : 1;

// Bytes of the ring in which a thread's packs arrive: [kDepth][packs][threads of the block].
template <typename T, int kThreads, int kElements, int kDepth>
constexpr int kStreamBytes =
    kDepth * kElements * kStreamBlockOf<kThreads> * static_cast<int>(sizeof(T));

// memory: where x starts
template <typename T, bool kWhole>
__device__ __forceinline__ void fetch_pack(uint4* slot, const Row<T, int, kWhole>& row, int pack,
                                           const T* memory) {
  constexpr int kSize = Pack<T>::kSize;
  const T* const from = row.start + pack * kSize;
  if (row.whole(pack)) {
    copy_async(slot, from);
  } else if constexpr (!kWhole) {
    const int left = row.last - pack * kSize;
    if (left <= 0) return;
    if (from < memory) {
      const Pack<T> edge = row.load(pack);
      *slot = make_uint4(edge.words[0], edge.words[1], edge.words[2], edge.words[3]);
    } else {
      // What lies before the row is the row above; it comes along, and `arrived_pack` drops it.
      copy_async_part(slot, from, min(left, kSize) * static_cast<int>(sizeof(T)));
    }
  }
}

// -inf where the pack reaches past the row, as Row::load gives. Slots without a row hold anything.
template <typename T, bool kWhole>
__device__ __forceinline__ Pack<T> arrived_pack(const uint4* slot, const Row<T, int, kWhole>& row,
                                                int pack) {
  const auto nothing = from_float<T>(-infinity());
  if (row.whole(pack)) return {{slot->x, slot->y, slot->z, slot->w}};
  if constexpr (kWhole) return gather<T>([&](int) { return nothing; });
  return gather<T>([&](int i) {
    const bool inside = row.has(pack * Pack<T>::kSize + i);
    return inside ? reinterpret_cast<const T*>(slot)[i] : nothing;
  });
}

// Where the warps of a block or a cluster meet, row after row: in two places in turns, so that a
// row's partials are read while the next row's arrive.
template <int kCluster, int kWarps>
struct Meeting;

template <int kWarps>
struct Meeting<1, kWarps> {
  Partial partials[2][kWarps];

  __device__ __forceinline__ void start() {}
  __device__ __forceinline__ void started() {}
  __device__ __forceinline__ void send(const Partial& of_warp, int, int turn) {
    if (threadIdx.x % 32 == 0) partials[turn % 2][threadIdx.x / 32] = of_warp;
  }
  __device__ __forceinline__ Partial wait(int turn) {
    __syncthreads();
    return combine_shared<kWarps>(partials[turn % 2]);
  }
};

#ifdef HAS_CLUSTERS
template <int kCluster, int kWarps>
struct Meeting {
  Exchange<kCluster, kWarps> exchanges[2];

  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0) {
      exchanges[0].init();
      exchanges[1].init();
    }
    cluster_started();
  }
  __device__ __forceinline__ void started() { cluster_wait_started(); }
  __device__ __forceinline__ void send(const Partial& of_warp, int rank, int turn) {
    if (threadIdx.x == 0) exchanges[turn % 2].expect();
    exchanges[turn % 2].send(of_warp, rank);
  }
  __device__ __forceinline__ Partial wait(int turn) {
    return exchanges[turn % 2].wait(turn / 2 % 2);
  }
};
#endif

// kThreads threads in each of kCluster blocks share a row, kElements each. Threads read back from
// shared memory only what they copied there themselves, so there is no barrier for that.
template <typename T, int kThreads, int kElements, int kDepth, int kCluster, bool kWhole>
__device__ __forceinline__ void softmax_streamed(const T* __restrict__ x,  // [rows, cols]
                                                 T* __restrict__ out,      // [rows, cols]
                                                 int64 rows, int cols, int turns) {
  constexpr int kBlock = kStreamBlockOf<kThreads>;
  constexpr int kRows = kBlock / kThreads;
  constexpr int kPacks = kElements / Pack<T>::kSize;
  constexpr int kSlots = kPacks * kBlock;
  constexpr int kStep = kCluster * kThreads;
  extern __shared__ uint4 ring[];  // [kDepth][kPacks][kBlock]

  const int64 group = block_number() / kCluster * turns * kRows;
  if (group >= rows) return;  // with all its cluster: nobody waits
  const auto turns_of = [&](int64 row) {
    const int64 left = (rows - row + kRows - 1) / kRows;
    return left < turns ? static_cast<int>(left) : turns;
  };
  const int count = turns_of(group);
  const int64 number = group + threadIdx.x / kThreads;
  // A thread that has no row in the last turn stays, for shuffles and barriers.
  const int own = number < rows ? turns_of(number) : 0;

  __shared__ Meeting<kCluster, (kThreads < 32 ? 1 : kThreads / 32)> meeting;
  if constexpr (kThreads > 32) meeting.start();
  int rank = 0;
#ifdef HAS_CLUSTERS
  if constexpr (kCluster > 1) rank = cluster_rank();
#endif
  const int first = rank * kThreads + threadIdx.x % kThreads;
  const T* const source = x + number * cols;
  T* const target = out + number * cols;
  const auto offset_of = [&](int turn) { return static_cast<int64>(turn) * (kRows * cols); };
  const auto row_of = [&](int turn) {
    return Row<T, int, kWhole>(source + offset_of(turn), turn < own ? cols : 0).from(first);
  };
  // begin: the thread's first slot for that row. An index, which is half of a pointer.
  const auto fetch = [&](int turn, int begin) {
    if (turn < own) {
      const auto row = row_of(turn);
#pragma unroll
      for (int k = 0; k < kPacks; ++k) fetch_pack(&ring[begin + k * kBlock], row, k * kStep, x);
    }
    // Even where nothing was left to copy: groups are what is counted.
    commit_copies();
  };

#pragma unroll 1
  for (int turn = 0; turn < kDepth; ++turn) fetch(turn, turn * kSlots + threadIdx.x);
  if constexpr (kThreads > 32) meeting.started();

  int begin = threadIdx.x;
#pragma unroll 1
  for (int turn = 0; turn < count; ++turn) {
    const auto row = row_of(turn);
    wait_for_copies<kDepth - 1>();
    Pack<T> packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      packs[k] = arrived_pack(&ring[begin + k * kBlock], row, k * kStep);
    }
    Share<T, kElements, false> share;
    const Partial mine = share.weigh(packs);
    Partial all = combine_lanes<(kThreads < 32 ? kThreads : 32)>(mine);
    // The slots' values are in that sum, so that they can be filled again.
    if constexpr (kThreads <= 32) {
      fetch(turn + kDepth, begin);
    } else {
      meeting.send(all, rank, turn);
      fetch(turn + kDepth, begin);
      all = meeting.wait(turn);
    }
    share.store(row, target + offset_of(turn) - row.first, kStep, mine, all);
    begin += begin < (kDepth - 1) * kSlots ? kSlots : -(kDepth - 1) * kSlots;
  }
}

// turns: rows that a block takes one after another; a block of short rows takes several at once
template <typename T, int kThreads, int kElements, int kDepth, bool kWhole>
__global__ void __launch_bounds__(kStreamBlockOf<kThreads>, kStreamResident<kThreads>)
    softmax_streamed_kernel(const T* __restrict__ x,  // [rows, cols]
                            T* __restrict__ out,      // [rows, cols]
                            int64 rows, int cols, int turns) {
  softmax_streamed<T, kThreads, kElements, kDepth, 1, kWhole>(x, out, rows, cols, turns);
}

// The same for kCluster blocks a row.
template <typename T, int kThreads, int kElements, int kDepth, int kCluster, bool kWhole>
__global__ void CLUSTER_SIZE(kCluster)
    __launch_bounds__(kStreamBlockOf<kThreads>, kStreamResident<kThreads>)
        softmax_streamed_cluster_kernel(const T* __restrict__ x,  // [rows, cols]
                                        T* __restrict__ out,      // [rows, cols]
                                        int64 rows, int cols, int turns) {
#ifdef HAS_CLUSTERS
  softmax_streamed<T, kThreads, kElements, kDepth, kCluster, kWhole>(x, out, rows, cols, turns);
#endif
}
