// softmax of long rows, whose loads and stores never wait for arithmetic: the next rows are on
// their way to shared memory and the last one's results on their way out of it while a row is
// computed, without a register for any of them.
//
// As many clusters of blocks as fit at once walk down the rows, a cluster a row. A row is cut into
// stretches, which the cluster's warps take in turns; a warp has a ring of kSlots slots of its own,
// in which its stretches of this row and of those to come arrive. What its threads have read they
// keep in registers, as in softmax_registers, and what they compute goes back to where it was read
// from, for the copy engine to take out: stores from registers would pass through an L1 that the
// ring leaves small. Warps meet in the sum of a row and nowhere else.
//
// Packs are counted from the 128-byte line of `out` that holds the row's first element, so that
// whole lines are written wherever the row starts.
#pragma once

#include "hopper.cuh"
#include "softmax_cluster.cuh"
#include "softmax_share.cuh"

constexpr int kLine = 128;

// 16-byte packs of a slot that a thread reads: as many bytes for every type.
template <int kElements>
constexpr int kSlotPacks = kElements / 8;

// Bytes of a block's rings.
template <int kThreads, int kElements, int kSlots>
constexpr int kRingBytes = kThreads * kSlots * kSlotPacks<kElements> * 16;

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

// `bytes` from shared to global memory, both at multiples of 16, in the thread's open bulk group.
// What was written there has to be fenced for the async proxy.
__device__ __forceinline__ void bulk_store(void* to, unsigned from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
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
  constexpr int kPacks = kElements / kSize;  // a thread's share of a row
  constexpr int kEach = kSlotPacks<kElements>;
  constexpr int kRowSlots = kPacks / kEach;  // 1, of float 2
  constexpr int kSlotBytes = kEach * 32 * 16;
  constexpr int kWarps = kThreads / 32;
  static_assert(kRowSlots < kSlots, "a row would wait for slots that it holds itself");

  extern __shared__ __align__(kLine) unsigned char rings[];  // [kWarps][kSlots][kEach][32] packs
  __shared__ Meeting<kCluster, kWarps> meeting;
  __shared__ unsigned long long barriers[kWarps][kSlots];  // each ends a phase when a slot is full

  const int rank = kCluster > 1 ? cluster_rank() : 0;
  const int groups = gridDim.x / kCluster;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned ring = shared_address(rings) + warp * kSlots * kSlotBytes;
  const unsigned full = shared_address(barriers[warp]);
  // The warp's stretch of a row, in packs. Blocks take turns, so that all have the same share of a
  // row that fills them half.
  const int stretch = (warp * kCluster + rank) * kPacks * 32;

  // Part h of the stretch of a row on its way to a slot that nobody reads any more. Only 16 bytes
  // that hold an element of the row are read: what lies beside them may be nobody's. Beyond the row
  // nothing is, and the slot's phase ends at once.
  const auto fetch = [&](int64 number, int h, int slot) {
    if (number >= rows) return;
    // Worked out anew every time: what the compiler kept of it from row to row would push others
    // out of registers.
    int start = stretch + h * kEach * 32;
    asm volatile("" : "+r"(start));
    const auto row = from_line<T, kWhole>(x + number * cols, out + number * cols, cols);
    const int first = max(row.first / kSize, start);
    const int last = min((row.last + kSize - 1) / kSize, start + kEach * 32);
    const int bytes = max(last - first, 0) * 16;
    mbarrier_expect(full + slot * 8, bytes);
    if (bytes > 0) {
      bulk_load(ring + slot * kSlotBytes + (first - start) * 16, row.start + first * kSize, bytes,
                full + slot * 8);
    }
  };

  int64 number = blockIdx.x / kCluster;
  if (lane == 0) {
    for (int i = 0; i < kSlots; ++i) mbarrier_init(full + i * 8, 1);
    mbarrier_init_fence();
    async_proxy_fence();
    for (int i = 0; i < kSlots; ++i)
      fetch(number + int64{i / kRowSlots} * groups, i % kRowSlots, i);
  }
  meeting.init();
  // Barriers are initialised for the warp's own threads, and for what peers send.
  if constexpr (kCluster > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }

  for (unsigned count = 0; number < rows; ++count, number += groups) {
    // Of the stretch's first part, and the parity of that slot's phase.
    const int slot = count * kRowSlots % kSlots;
    const unsigned parity = count * kRowSlots / kSlots % 2;
    const auto slot_of = [&](int h) { return slot + h < kSlots ? slot + h : slot + h - kSlots; };
    // The thread's pack k.
    const auto in_slot = [&](int k) {
      const int slots = warp * kSlots + slot_of(k / kEach);
      return reinterpret_cast<uint4*>(rings) + (slots * kEach + k % kEach) * 32 + lane;
    };
    // The slots of the row before, once its results have left them. Lane 0 wrote them out.
    const auto refill = [&] {
      if (count == 0 || lane != 0) return;
      tma_store_wait_read<0>();
#pragma unroll
      for (int h = 0; h < kRowSlots; ++h) {
        const int next = h + kSlots;  // counted from the row before
        const int to = slot + h - kRowSlots;
        fetch(number + int64{next / kRowSlots - 1} * groups, next % kRowSlots,
              to < 0 ? to + kSlots : to);
      }
    };
    // A row that needs what comes next can't wait first.
    constexpr bool kEarly = kSlots < 2 * kRowSlots;
    if constexpr (kEarly) refill();
    const auto row =
        from_line<T, kWhole>(x + number * cols, out + number * cols, cols).from(stretch + lane);
    Pack<T> packs[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (k % kEach == 0) {
        const int h = k / kEach;
        mbarrier_wait(full + slot_of(h) * 8, slot + h < kSlots ? parity : parity ^ 1);
      }
      const uint4 words = *in_slot(k);
      packs[k] = {{words.x, words.y, words.z, words.w}};
    }
    // A slot holds something else where the stretch reaches past the row.
#pragma unroll
    for (int k = 0; k < kPacks; ++k) packs[k] = row.clip(packs[k], k * 32);
    if constexpr (!kEarly) refill();

    Share<T, kElements> share;
    const Partial mine = share.weigh(packs);
    const Partial all = meeting.meet(combine_lanes<32>(mine), rank, count);
    T* const target = out + number * cols - row.first;
    share.finish(mine, all, [&](int k, const float (&values)[kSize]) {
      if (row.whole(k * 32)) {
        const Pack<T> pack = pack_floats<T>(values);
        *in_slot(k) = make_uint4(pack.words[0], pack.words[1], pack.words[2], pack.words[3]);
      } else {
        row.store(target, k * 32, values);
      }
    });
    async_proxy_fence();
    __syncwarp();
    if (lane == 0) {
#pragma unroll
      for (int h = 0; h < kRowSlots; ++h) {
        int start = h * kEach * 32;  // in packs from the warp's first, as `row` is
        asm volatile("" : "+r"(start));
        const int first = max(row.first > 0 ? (row.first + kSize - 1) / kSize : 0, start);
        const int last = min(row.last > 0 ? row.last / kSize : 0, start + kEach * 32);
        if (first < last) {
          bulk_store(target + first * kSize, ring + slot_of(h) * kSlotBytes + (first - start) * 16,
                     (last - first) * 16);
        }
      }
      bulk_commit();
    }
  }
  // Shared memory goes with the block. Nobody waits for peers here: a block has all that they send
  // to it once its last row is done.
  if (lane == 0) tma_store_wait_read<0>();
#endif
}
