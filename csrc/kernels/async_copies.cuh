// Copies from global to shared memory that run while the thread goes on (cp.async, sm_80): past L1
// and past the registers. What has come is visible to the thread that copied it once it has waited,
// and to others after a barrier.
#pragma once

// 16 bytes. Both are 16-byte aligned.
__device__ __forceinline__ void copy_async(void* to, const void* from) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

// The first `bytes` of them; no more is read, and the others are written as zeros.
__device__ __forceinline__ void copy_async_part(void* to, const void* from, int bytes) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
}

// The same, to shared memory by its 32-bit number. L2 fetches the 128 bytes round them.
__device__ __forceinline__ void copy_async_part(unsigned to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}

// 16 bytes where `there`, else zeros, and `from` is not looked at. Both are 16-byte aligned. L2
// fetches the 256 bytes round them, since a row's next stage lies beside this one's.
__device__ __forceinline__ void copy_async_where(unsigned to, const void* from, bool there) {
  asm volatile(
      "{\n\t"
      ".reg .pred ignore;\n\t"
      "setp.eq.b32 ignore, %2, 0;\n\t"
      "cp.async.cg.shared.global.L2::256B [%0], [%1], 16, ignore;\n\t"
      "}" ::"r"(to),
      "l"(from), "r"(static_cast<int>(there))
      : "memory");
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until no more than kPending of this thread's groups of copies are on their way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
