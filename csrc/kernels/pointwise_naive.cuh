// A pointwise op's first draft: one thread an element, one access an element.
//
// `Steps` is the op: a class with `static float apply(float x, float residual, float bias)`.
#pragma once

#include "scalars.cuh"

// As a first draft writes it.
__device__ __forceinline__ float sigmoid_exact(float x) { return 1.0f / (1.0f + expf(-x)); }

template <typename Steps, typename T>
__device__ __forceinline__ void pointwise_naive(const T* __restrict__ x,         // [count]
                                                const T* __restrict__ residual,  // [count]
                                                const T* __restrict__ bias,      // [cols]
                                                T* __restrict__ out,             // [count]
                                                int64 count, int64 cols) {
  const int64 i = block_number() * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float result =
      Steps::apply(to_float(x[i]), to_float(residual[i]), to_float(bias[i % cols]));
  out[i] = from_float<T>(result);
}
