// Copies from global to shared memory that nobody waits for until they are needed (sm_80 and
// later).
//
// A thread's copies are counted in groups. What they wrote is seen by the thread itself once it has
// waited for its group, and by others after a barrier.
#pragma once

// 16 bytes, past L1 and past the registers. Both are 16-byte aligned.
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

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until no more than kPending of this thread's groups of copies are on their way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
