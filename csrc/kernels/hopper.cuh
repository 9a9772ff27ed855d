// Hopper's asynchronous instructions, one function each: barriers in shared memory that count
// bytes, the tensor memory accelerator (TMA) that copies tiles, and the tensor cores that read
// shared memory (wgmma). PTX ISA 8.0; all but the types need sm_90a.
//
// Shared memory is addressed by 32-bit numbers, as the instructions want it.
#pragma once

#include "clusters.cuh"
#include "packs.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WGMMA
#endif

// What cuTensorMapEncodeTiled writes: where a tensor lies, its shape, the box that one copy moves.
// A kernel takes it as `const __grid_constant__ TensorMap`.
struct alignas(128) TensorMap {
  unsigned long long opaque[16];
};

// A row of a box as the hardware swizzles it: 128 bytes, 64 elements of 16 bits. The 16-byte chunk
// c of row r lies at chunk c ^ (r % 8), so that neither a row nor a column of chunks meets a bank
// twice. Boxes start at multiples of kSwizzlePeriod.
constexpr int kSwizzleRow = 128;
constexpr int kSwizzlePeriod = 8 * kSwizzleRow;

#ifdef HAS_WGMMA

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ---------------------------------------------------------------------------- warps

// `threads` of a block; id 0 is __syncthreads' own.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// A warpgroup gives registers back, or takes what others gave.
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---------------------------------------------------------------------------- mbarriers

// A phase ends when `arrivals` have come and all expected bytes too.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the cluster and to the TMA; cluster_sync() must follow.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// One arrival, and `bytes` more to wait for.
__device__ __forceinline__ void mbarrier_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// One arrival, after which what this thread has read may be written over.
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival at the barrier of the same address in block `rank` of the cluster. Relaxed: it
// follows reads that are done, and a release at cluster scope would be a fence for the whole
// device.
__device__ __forceinline__ void mbarrier_arrive_at(unsigned barrier, int rank) {
  asm volatile(
      "{\n\t"
      ".reg .b32 remote;\n\t"
      "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote];\n\t"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Until the phase of that parity has ended. Of a fresh barrier, phase 1 counts as ended.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

// A stage of a ring, and the parity of its full barrier's phase.
template <int kStages>
struct Ring {
  int stage = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// ---------------------------------------------------------------------------- TMA

__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The box at (x, y), x innermost, to shared memory; its bytes are counted at `barrier`. What lies
// outside the tensor comes as zeros, and counts.
__device__ __forceinline__ void tma_load(unsigned to, const TensorMap& map, int x, int y,
                                         unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

// What tells L2 that data is read once: it makes room for other data first.
__device__ __forceinline__ unsigned long long evict_first() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// The same as tma_load, with a word to L2 on what it shall keep.
__device__ __forceinline__ void tma_load_hinted(unsigned to, const TensorMap& map, int x, int y,
                                                unsigned barrier, unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
      : "memory");
}

// tma_load to every block of the cluster in `mask`, at the same address, counted at each one's own
// barrier.
__device__ __forceinline__ void tma_multicast(unsigned to, const TensorMap& map, int x, int y,
                                              unsigned barrier, int mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(static_cast<unsigned short>(mask))
      : "memory");
}

// The box from shared memory to (x, y); what lies outside the tensor is left out. A bulk group of
// its own, of the calling thread.
__device__ __forceinline__ void tma_store(const TensorMap& map, int x, int y, unsigned from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\n\t"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(from), "r"(x), "r"(y)
      : "memory");
}

// Until all but the thread's last kPending stores have read their shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Makes the thread's ordinary writes to shared memory visible to the TMA.
__device__ __forceinline__ void async_proxy_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Four 8x8 matrices of 16-bit elements, held as tensor cores hold them; lane l gives the address of
// row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(unsigned row, const unsigned (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// ---------------------------------------------------------------------------- wgmma

// A swizzled operand in shared memory. In units of 16 bytes: bits 0-13 where it starts, 16-29 the
// leading offset, 32-45 the stride offset; bits 62-63 = 1: 128-byte swizzle.
//   rows along k:  8 rows of the other dimension make a period; the next 8 are one stride offset
//                  on, and 16 steps of k are within the row: the leading offset is not used
//   k along rows:  8 steps of k make a period, the next 8 are one stride offset on; the next 64
//                  elements of the other dimension are one leading offset on
__device__ __forceinline__ unsigned long long operand_descriptor(unsigned address, int leading,
                                                                 int stride) {
  return static_cast<unsigned long long>((address & 0x3ffff) >> 4) |
         static_cast<unsigned long long>(leading >> 4) << 16 |
         static_cast<unsigned long long>(stride >> 4) << 32 | 1ull << 62;
}

// Orders the registers before the first wgmma that uses them.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until all but the last kPending groups are done, with their results and with shared memory.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Sums are read after the wait, though the compiler sees no reason for it.
template <int kCount>
__device__ __forceinline__ void wgmma_results(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The assembler wants every register by name.
#define FOUR(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIXTEEN(d, i) FOUR(d, i), FOUR(d, i + 4), FOUR(d, i + 8), FOUR(d, i + 12)
#define THIRTY_TWO(d, i) SIXTEEN(d, i), SIXTEEN(d, i + 16)
#define NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_16 NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32 \
  NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_128                                                                        \
  NAMES_32                                                                               \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "   \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "     \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "     \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "     \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "     \
  "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, " \
  "%124, %125, %126, %127"
// The rest: a, b, keep, across: names of the operands that follow the registers, which come last.
#define WGMMA(shape, type, names, at_a, at_b, at_keep, at_across, ...)                        \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " at_keep                                \
               ", 0;\n\twgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" names \
               "}, " at_a ", " at_b ", p, 1, 1, 0, " at_across ";\n\t}"                       \
               : __VA_ARGS__                                                                  \
               : "l"(a), "l"(b), "r"(keep), "n"(kTransposed))
#define WGMMA_OF(shape, ...)           \
  if constexpr (kSame<T, __half>) {    \
    WGMMA(shape, "f16", __VA_ARGS__);  \
  } else {                             \
    WGMMA(shape, "bf16", __VA_ARGS__); \
  }

// d = a * b, plus d where keep: 64 rows, kCols columns, 16 steps of k. Warp w of the warpgroup
// holds rows 16 w to 16 w + 15; lane l of it has in d[4 j + 2 h + e] row 8 h + l / 4, column 8 j +
// l % 4 * 2 + e. kAcross: b's columns, not k, lie along its rows in memory.
template <typename T, int kCols, bool kAcross>
__device__ __forceinline__ void wgmma(float (&d)[kCols / 2], unsigned long long a,
                                      unsigned long long b, int keep) {
  constexpr int kTransposed = kAcross;
  if constexpr (kCols == 16) {
    WGMMA_OF("m64n16k16", NAMES_8, "%8", "%9", "%10", "%11", FOUR(d, 0), FOUR(d, 4))
  } else if constexpr (kCols == 32) {
    WGMMA_OF("m64n32k16", NAMES_16, "%16", "%17", "%18", "%19", SIXTEEN(d, 0))
  } else if constexpr (kCols == 64) {
    WGMMA_OF("m64n64k16", NAMES_32, "%32", "%33", "%34", "%35", THIRTY_TWO(d, 0))
  } else {
    static_assert(kCols == 256);
    WGMMA_OF("m64n256k16", NAMES_128, "%128", "%129", "%130", "%131", THIRTY_TWO(d, 0),
             THIRTY_TWO(d, 32), THIRTY_TWO(d, 64), THIRTY_TWO(d, 96))
  }
}

#undef FOUR
#undef SIXTEEN
#undef THIRTY_TWO
#undef NAMES_8
#undef NAMES_16
#undef NAMES_32
#undef NAMES_128
#undef WGMMA
#undef WGMMA_OF

#endif  // HAS_WGMMA
