// matmul, first draft: one thread an entry of the output, read straight from global memory.
#pragma once

#include "scalars.cuh"

// a: [m, k], element (i, j) at i * a_row + j; b: [k, n], element (i, j) at i * b_row + j * b_col
template <typename T>
__global__ void matmul_naive_kernel(const T* __restrict__ a, const T* __restrict__ b,
                                    T* __restrict__ out,  // [m, n]
                                    int64 m, int64 n, int64 k, int64 a_row, int64 b_row,
                                    int64 b_col) {
  const int64 index = block_number() * blockDim.x + threadIdx.x;
  if (index >= m * n) return;
  a += index / n * a_row;
  b += index % n * b_col;
  float sum = 0.0f;
  for (int64 i = 0; i < k; ++i) sum = fmaf(to_float(a[i]), to_float(b[i * b_row]), sum);
  out[index] = from_float<T>(sum);
}
