// What the bindings of matmul, in either module, ask of its operands.
#pragma once

#include <algorithm>

#include "bindings.h"

inline void check_matrix(const char* name, const at::Tensor& x, const at::Tensor& a) {
  check_dimensions(name, x, 2);
  TORCH_CHECK_VALUE(x.numel() > 0, name, " must not be empty, got shape ", x.sizes());
  TORCH_CHECK_VALUE(x.device() == a.device(), name, " must be on ", a.device(), ", got ",
                    x.device());
  TORCH_CHECK_TYPE(x.scalar_type() == a.scalar_type(), name, " must have dtype ", a.scalar_type(),
                   ", got ", x.scalar_type());
}

inline void check_by_rows(const char* name, const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.stride(1) == 1, name, " must have stride 1 along its last dimension, got ",
                    x.strides());
}

// a: [m, k], by rows; out: [m, n], contiguous; b: [k, n], or with weight [n, k], by rows where its
// strides aren't passed on.
inline void check_operands(const at::Tensor& a, const at::Tensor& b, bool weight,
                           const at::Tensor& out) {
  TORCH_CHECK_VALUE(a.is_cuda(), "a must be on a CUDA device, got ", a.device());
  dtype_of(a);
  check_matrix("a", a, a);
  check_by_rows("a", a);
  check_matrix("b", b, a);
  TORCH_CHECK_VALUE(b.size(weight ? 1 : 0) == a.size(1), "b must have K = ", a.size(1),
                    ", got shape ", b.sizes());
  const int64_t shape[] = {a.size(0), b.size(weight ? 0 : 1)};
  check_beside("out", out, a, shape);
}

// Rows that the tensor memory accelerator can address, and cp.async copy 16 bytes at a time.
inline bool rows_aligned(const at::Tensor& x, int64_t stride) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 &&
         stride * x.element_size() % 16 == 0 && stride >= x.size(1);
}

inline void check_rows_aligned(const char* name, const at::Tensor& x, int64_t stride) {
  TORCH_CHECK_VALUE(rows_aligned(x, stride), "the plan copies 16 bytes at a time, but the rows of ",
                    name, " don't start at multiples of 16 bytes");
}

// The tensor memory accelerator takes coordinates of 32 bits.
inline void check_counted(const at::Tensor& out, int64_t k) {
  TORCH_CHECK_VALUE(std::max({out.size(0), out.size(1), k}) < int64_t{1} << 30,
                    "the plan counts in 32 bits, but a size is 2^30 or more");
}
