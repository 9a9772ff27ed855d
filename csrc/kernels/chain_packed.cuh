// chain, good: 16-byte packs, several in flight a thread, special functions as accurate as T needs.
#pragma once

#include "chain_steps.cuh"
#include "pointwise.cuh"

template <typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
__global__ void __launch_bounds__(kThreads)
    chain_packed_kernel(const T* __restrict__ x,         // [count]
                        const T* __restrict__ residual,  // [count]
                        const T* __restrict__ bias,      // [cols]
                        T* __restrict__ out,             // [count]
                        int64 count, int64 cols, unsigned long long reciprocal, int64 stride) {
  pointwise_packed<ChainSteps<FastFunctions<T>>, T, kThreads, kPacks, kVector, kBiasPacks>(
      x, residual, bias, out, count, cols, reciprocal, stride);
}
