// chain_sfu, rung 2: functions from the special-function unit's own results.
//
// An exponential and a reciprocal each, in a few instructions where the library's have branches and
// a dozen or two. Accurate enough for float32 (2e-7), and 32 results an element: that many bind.
#pragma once

#include "chain_sfu_steps.cuh"
#include "pointwise.cuh"
#include "special_functions.cuh"

struct ApproxFunctions {
  __device__ static float tanh(float x) { return FastFunctions<float>::tanh(x); }
  __device__ static float sigmoid(float x) {
    return reciprocal_approx(1.0f + exp2_approx(x * -kLog2e));
  }
};

template <typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
__global__ void __launch_bounds__(kThreads, kPackedResident<kPacks, kBiasPacks> / kThreads)
    chain_sfu_approx_kernel(const T* __restrict__ x,         // [count]
                            const T* __restrict__ residual,  // [count]
                            const T* __restrict__ bias,      // [cols]
                            T* __restrict__ out,             // [count]
                            int64 count, int64 cols, unsigned long long reciprocal, int64 stride) {
  pointwise_packed<ChainSfuSteps<ApproxFunctions>, T, kThreads, kPacks, kVector, kBiasPacks>(
      x, residual, bias, out, count, cols, reciprocal, stride);
}
