// softmax, second draft: a block a row, which it still reads three times.
//
// What it adds to naive: the threads of a warp read neighbours, so that a load is one or two lines
// of memory where naive's is 32, and a row has kThreads threads where it had one. What it leaves:
// four passes over memory's bus, of which two would do.
#pragma once

#include "scalars.cuh"

// combine(a, b) over all of the block's values.
template <int kThreads, typename Combine>
__device__ __forceinline__ float over_block(float value, Combine combine) {
  __shared__ float of_warps[kThreads / 32];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffff, value, lanes));
  }
  __syncthreads();  // the call before has read them
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[0];
#pragma unroll
  for (int warp = 1; warp < kThreads / 32; ++warp) value = combine(value, of_warps[warp]);
  return value;
}

template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads)
    softmax_block_kernel(const T* __restrict__ x,  // [rows, cols]
                         T* __restrict__ out,      // [rows, cols]
                         int64 rows, int64 cols) {
  const int64 row = block_number();
  if (row >= rows) return;  // the whole block: nobody waits at a barrier
  x += row * cols;
  out += row * cols;

  float largest = -infinity();
  for (int64 col = threadIdx.x; col < cols; col += kThreads) {
    largest = max_nan(largest, to_float(x[col]));
  }
  largest = over_block<kThreads>(largest, [](float a, float b) { return max_nan(a, b); });
  float sum = 0.0f;
  for (int64 col = threadIdx.x; col < cols; col += kThreads) {
    sum += expf(to_float(x[col]) - largest);
  }
  sum = over_block<kThreads>(sum, [](float a, float b) { return a + b; });
  for (int64 col = threadIdx.x; col < cols; col += kThreads) {
    out[col] = from_float<T>(expf(to_float(x[col]) - largest) / sum);
  }
}
