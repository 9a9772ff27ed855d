// chain_sfu, rung 1: the draft's functions, 16 bytes at a time.
//
// Adds the walk of the tuned kernel and nothing else. Memory is not what binds this op, so that
// should buy little: what a tanhf and an expf take in instructions stays.
#pragma once

#include "chain_sfu_naive.cuh"
#include "pointwise.cuh"

template <typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
__global__ void __launch_bounds__(kThreads, kPackedResident<kPacks, kBiasPacks> / kThreads)
    chain_sfu_exact_kernel(const T* __restrict__ x,         // [count]
                           const T* __restrict__ residual,  // [count]
                           const T* __restrict__ bias,      // [cols]
                           T* __restrict__ out,             // [count]
                           int64 count, int64 cols, unsigned long long reciprocal, int64 stride) {
  pointwise_packed<ChainSfuSteps<LibraryFunctions>, T, kThreads, kPacks, kVector, kBiasPacks>(
      x, residual, bias, out, count, cols, reciprocal, stride);
}
