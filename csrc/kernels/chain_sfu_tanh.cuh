// chain_sfu, rung 3: every function one result of the special-function unit.
//
// sm_75 and later have tanh as an instruction, and a sigmoid is one of it: sigmoid(x) is
// 0.5 + 0.5 tanh(x / 2). Sixteen results an element where the rung before has 32: half its time,
// and the ceiling of one result a step. Its relative error of 2^-11 is for 16-bit types alone;
// float32 stays as it was.
#pragma once

#include "chain_sfu_approx.cuh"

struct OneTanhFunctions {
  __device__ static float tanh(float x) { return TanhApproxFunctions::tanh(x); }
  __device__ static float sigmoid(float x) { return 0.5f * tanh(0.5f * x) + 0.5f; }
};

template <typename T>
struct ChainSfuTanhSteps : ChainSfuSteps<OneTanhFunctions> {};

template <>
struct ChainSfuTanhSteps<float> : ChainSfuSteps<ApproxFunctions> {};

template <typename T, int kThreads, int kPacks, bool kVector, bool kBiasPacks>
__global__ void __launch_bounds__(kThreads, kPackedResident<kPacks, kBiasPacks> / kThreads)
    chain_sfu_tanh_kernel(const T* __restrict__ x,         // [count]
                          const T* __restrict__ residual,  // [count]
                          const T* __restrict__ bias,      // [cols]
                          T* __restrict__ out,             // [count]
                          int64 count, int64 cols, unsigned long long reciprocal, int64 stride) {
  pointwise_packed<ChainSfuTanhSteps<T>, T, kThreads, kPacks, kVector, kBiasPacks>(
      x, residual, bias, out, count, cols, reciprocal, stride);
}
