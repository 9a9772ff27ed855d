// softmax of long rows, whose loads never wait for arithmetic: the next rows are on their way to
// shared memory while a row is computed, without a register for any of them.
//
// As many clusters of blocks as fit at once walk down the rows, a cluster a row. A row is cut into
// chunks of one 16-byte pack a thread, which the cluster's blocks take in turns; a block's chunks,
// of this row and of those to come, go through a ring of kSlots slots. What a thread has read it
// keeps in registers, as in softmax_registers: a slot is waited for once and read once.
//
// Chunks are counted from the 128-byte line of `out` that holds the row's first element, so that a
// warp writes whole lines wherever the row starts.
#pragma once

#include "hopper.cuh"
#include "softmax_cluster.cuh"
#include "softmax_share.cuh"

constexpr int kLine = 128;

// Bytes of a block's ring.
template <int kThreads, int kSlots>
constexpr int kRingBytes = kThreads * kSlots * 16;

#ifdef HAS_WGMMA

// `bytes` from global to shared memory, both at multiples of 16; they are counted at `barrier`.
__device__ __forceinline__ void bulk_load(unsigned to, const void* from, int bytes,
                                          unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// The row, with packs counted from the line of `out` in which it starts. x and out lie at the same
// distance from a 16-byte boundary. kWhole: rows start and end with lines.
template <typename T, bool kWhole>
__device__ __forceinline__ Row<T, int, kWhole> from_line(const T* x, const T* out, int cols) {
  const Row<T, int, kWhole> row(x, cols);
  if constexpr (kWhole) return row;
  const auto address = reinterpret_cast<unsigned long long>(out);
  return row.from(-static_cast<int>(address % kLine / 16));
}

// Where a block's warps, and those of the other blocks that share a row, learn of each other's
// partials. After `meet` all warps of the block have come to it.
template <int kCluster, int kWarps>
struct Meeting {
  Exchange<kCluster, kWarps> rounds[2];  // by turns: an Exchange may be used every second time

  __device__ __forceinline__ void init() {
    if (threadIdx.x < 2) {
      rounds[threadIdx.x].init();
      rounds[threadIdx.x].expect();
    }
  }

  // count: of meetings before
  __device__ __forceinline__ Partial meet(const Partial& of_warp, int rank, unsigned count) {
    auto& round = rounds[count % 2];
    round.send(of_warp, rank);
    const Partial all = round.wait(count / 2 % 2);
    // For the meeting after the next: peers send for that only once they have all of the next,
    // which this warp takes part in after this.
    if (threadIdx.x == 0) round.expect();
    return all;
  }
};

// A block alone. A warp that writes for the next row but one has been through the next one's
// barrier, and so have all that read this one's.
template <int kWarps>
struct Meeting<1, kWarps> {
  Partial rounds[2][kWarps];

  __device__ __forceinline__ void init() {}

  __device__ __forceinline__ Partial meet(const Partial& of_warp, int, unsigned count) {
    auto& round = rounds[count % 2];
    if (threadIdx.x % 32 == 0) round[threadIdx.x / 32] = of_warp;
    __syncthreads();
    return combine_shared<kWarps>(round);
  }
};

#endif  // HAS_WGMMA

// kThreads threads in each of kCluster blocks, each holding kElements elements of a row. Shared
// memory: kRingBytes. The grid is a multiple of kCluster.
template <typename T, int kThreads, int kElements, int kCluster, int kSlots, bool kWhole>
__global__ void CLUSTER_SIZE(kCluster) __launch_bounds__(kThreads, 1024 / kThreads)
    softmax_streamed_kernel(const T* __restrict__ x,  // [rows, cols]
                            T* __restrict__ out,      // [rows, cols]
                            int64 rows, int cols) {
#ifdef HAS_WGMMA
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kPacks = kElements / kSize;  // a thread's share of a row, and so a block's chunks
  constexpr int kWarps = kThreads / 32;
  static_assert(kPacks <= kSlots, "a row would wait for slots that it holds itself");
  static_assert(kPacks <= kWarps, "a warp a chunk sees to what takes its slot");
  static_assert(kSlots <= 32);

  extern __shared__ __align__(kLine) unsigned char ring[];  // [kSlots][kThreads] packs
  __shared__ Meeting<kCluster, kWarps> meeting;
  __shared__ unsigned long long full[kSlots];  // ends a phase when a slot's chunk is there

  const int rank = kCluster > 1 ? cluster_rank() : 0;
  const int64 groups = gridDim.x / kCluster;

  // Chunk k of this block's share of a row on its way to a slot that nobody reads any more. Only
  // 16 bytes that hold an element of the row are read: what lies beside them may be nobody's. Of a
  // chunk beyond the row nothing is, and its phase ends at once.
  const auto fetch = [&](int64 number, int k, int slot) {
    if (number >= rows) return;
    const auto row = from_line<T, kWhole>(x + number * cols, out + number * cols, cols);
    const int chunk = (k * kCluster + rank) * kThreads;
    const int first = max(row.first / kSize, chunk);
    const int last = min((row.last + kSize - 1) / kSize, chunk + kThreads);
    const int bytes = max(last - first, 0) * 16;
    const unsigned barrier = shared_address(&full[slot]);
    mbarrier_expect(barrier, bytes);
    if (bytes > 0) {
      bulk_load(shared_address(ring) + (slot * kThreads + first - chunk) * 16,
                row.start + first * kSize, bytes, barrier);
    }
  };

  int64 number = blockIdx.x / kCluster;
  if (threadIdx.x < kSlots) {
    const int i = threadIdx.x;
    mbarrier_init(shared_address(&full[i]), 1);
    mbarrier_init_fence();
    async_proxy_fence();
    fetch(number + i / kPacks * groups, i % kPacks, i);
  }
  meeting.init();
  // Barriers are initialised for this block's threads, and for what peers send.
  if constexpr (kCluster > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }

  const int thread = rank * kThreads + threadIdx.x;
  constexpr int kStep = kCluster * kThreads;
  int slot = 0;         // of the row's first chunk
  unsigned parity = 0;  // of that slot's phase
  for (unsigned count = 0; number < rows; ++count, number += groups) {
    const auto slot_of = [&](int k) { return slot + k < kSlots ? slot + k : slot + k - kSlots; };
    const auto in_slot = [&](int k) {
      return reinterpret_cast<const T*>(ring) + (slot_of(k) * kThreads + threadIdx.x) * kSize;
    };
    const auto row =
        from_line<T, kWhole>(x + number * cols, out + number * cols, cols).from(thread);
    Pack<T> packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      mbarrier_wait(shared_address(&full[slot_of(k)]), slot + k < kSlots ? parity : parity ^ 1);
      const uint4 words = *reinterpret_cast<const uint4*>(in_slot(k));
      packs[k] = {{words.x, words.y, words.z, words.w}};
    }
    // A slot holds something else where its chunk reaches past the row.
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (row.whole(k * kStep)) continue;
      const auto nothing = from_float<T>(-infinity());
      packs[k] = gather<T>([&](int i) {
        if constexpr (kWhole) return nothing;
        return row.has(k * kStep * kSize + i) ? in_slot(k)[i] : nothing;
      });
    }

    Share<T, kElements> share;
    const Partial mine = share.weigh(packs);
    const Partial all = meeting.meet(combine_lanes<32>(mine), rank, count);

    // All of the block's warps have come to the meeting with what they read from the row's slots.
    // That is order enough for the copies that write there next: they write after what was read
    // has arrived, and no fence between the two kinds of access is needed, as it would be for
    // writes. Warp k sees to slot k, since one thread would keep its warp from storing.
    const int warp = threadIdx.x / 32;
    if (warp < kPacks && threadIdx.x % 32 == 0) {
      const int chunk = warp + kSlots % kPacks;
      const int ahead = kSlots / kPacks + chunk / kPacks;
      fetch(number + ahead * groups, chunk % kPacks, slot_of(warp));
    }
    __syncwarp();
    share.store(row, out + number * cols - row.first, kStep, mine, all);

    slot += kPacks;
    if (slot >= kSlots) {
      slot -= kSlots;
      parity ^= 1;
    }
  }
  // Nobody waits for peers here: a block has all that they send to it once its last row is done.
#endif
}
