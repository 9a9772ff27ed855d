// softmax, first draft: one thread a row, which it reads three times.
#pragma once

#include "scalars.cuh"

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
  // One running sum of a long row: in float it would lose two digits by 4096 columns.
  double total = 0.0;
  for (int64 col = 0; col < cols; ++col) total += expf(to_float(x[col]) - largest);
  const float sum = static_cast<float>(total);
  for (int64 col = 0; col < cols; ++col) {
    out[col] = from_float<T>(expf(to_float(x[col]) - largest) / sum);
  }
}
