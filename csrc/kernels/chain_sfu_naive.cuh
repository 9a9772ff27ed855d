// chain_sfu, first draft: one thread an element, the forty steps as they are written, CUDA's own
// functions.
#pragma once

#include "chain_sfu_steps.cuh"
#include "pointwise_naive.cuh"

// As CUDA's mathematical library has them, for all arguments and to the last bit or two.
struct LibraryFunctions {
  __device__ static float tanh(float x) { return tanhf(x); }
  __device__ static float sigmoid(float x) { return sigmoid_exact(x); }
};

template <typename T>
__global__ void chain_sfu_naive_kernel(const T* __restrict__ x,         // [count]
                                       const T* __restrict__ residual,  // [count]
                                       const T* __restrict__ bias,      // [cols]
                                       T* __restrict__ out,             // [count]
                                       int64 count, int64 cols) {
  pointwise_naive<ChainSfuSteps<LibraryFunctions>>(x, residual, bias, out, count, cols);
}
