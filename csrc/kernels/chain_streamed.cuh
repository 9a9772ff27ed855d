// chain, one rung above chain_packed: the same steps, streamed (see streamed.cuh).
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
