// softmax, first draft: one thread a row, which it reads three times.
#pragma once

#include "packs.cuh"

template <typename T>
__global__ void softmax_naive_kernel(const T* __restrict__ x,  // [rows, cols]
                                     T* __restrict__ out,      // [rows, cols]
                                     int64 rows, int64 cols) {
  const int64 row = block_number() * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  x += row * cols;
  out += row * cols;

  float largest = -infinity();
  for (int64 col = 0; col < cols; ++col) largest = max_nan(largest, to_float(x[col]));
  float sum = 0.0f;
  for (int64 col = 0; col < cols; ++col) sum += expf(to_float(x[col]) - largest);
  for (int64 col = 0; col < cols; ++col) {
    out[col] = from_float<T>(expf(to_float(x[col]) - largest) / sum);
  }
}
