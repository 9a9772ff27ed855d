// chain, another way to keep memory busy: the steps of chain_packed, streamed (streamed.cuh).
//
// It was to win by never waiting for arithmetic, and does not: on an H200 0.88 of the copy at 2^24
// bfloat16 elements and 0.91 at 2^28, where chain_packed has 0.96 at both. It issues as many
// instructions, 33 an element; what it waits for instead is not known yet.
#pragma once

#include "chain_packed.cuh"
#include "streamed.cuh"

// kResidentThreads: threads an SM that registers are left for.
template <typename T, int kThreads, int kDepth, int kResidentThreads>
__global__ void __launch_bounds__(kThreads, kResidentThreads / kThreads)
    chain_streamed_kernel(const T* __restrict__ x,         // [rows, cols]
                          const T* __restrict__ residual,  // [rows, cols]
                          const T* __restrict__ bias,      // [cols]
                          T* __restrict__ out,             // [rows, cols]
                          int64 rows, int64 cols) {
  pointwise_streamed<ChainPackedSteps<T>, T, kThreads, kDepth>(x, residual, bias, out, rows, cols);
}
