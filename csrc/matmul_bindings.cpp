// matmul's functions of cuda_impl._C.
//
// Unlike the other ops' inputs, a and b come with strides: their layouts are part of the plan.
#include <algorithm>

#include "bindings.h"
#include "matmul_launchers.h"

namespace {

// a: [m, k], neighbours along k; b: [k, n]; out: [m, n] contiguous.
void check_operands(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  TORCH_CHECK_VALUE(a.is_cuda(), "a must be on a CUDA device, got ", a.device());
  dtype_of(a);
  check_dimensions("a", a, 2);
  check_dimensions("b", b, 2);
  TORCH_CHECK_VALUE(b.size(0) == a.size(1), "b must have ", a.size(1), " rows, got ", b.size(0));
  TORCH_CHECK_VALUE(b.device() == a.device(), "b must be on ", a.device(), ", got ", b.device());
  TORCH_CHECK_TYPE(b.scalar_type() == a.scalar_type(), "b must have dtype ", a.scalar_type(),
                   ", got ", b.scalar_type());
  TORCH_CHECK_VALUE(a.numel() > 0 && b.numel() > 0, "a and b must not be empty");
  TORCH_CHECK_VALUE(a.stride(1) == 1, "a must have stride 1 along k, got ", a.strides());
  const int64_t shape[] = {a.size(0), b.size(1)};
  check_beside("out", out, a, shape);
}

// The stride between rows of what b stores: [n, k] for a weight, else [k, n].
int64_t row_stride(const at::Tensor& b, bool weight) {
  TORCH_CHECK_VALUE(b.stride(weight ? 0 : 1) == 1, "b must have stride 1 along ",
                    weight ? "k" : "n", ", got ", b.strides());
  return b.stride(weight ? 1 : 0);
}

// Exactly 9: the instructions are Hopper's own, and later architectures don't have them.
void check_hopper() {
  int device = 0, major = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  TORCH_CHECK_VALUE(major == 9, "wgmma needs compute capability 9.0, the device has ", major, ".x");
}

bool starts_on_16_bytes(const at::Tensor& tensor, int64_t stride) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0 &&
         stride * tensor.element_size() % 16 == 0;
}

void matmul_naive_binding(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                          int threads) {
  check_operands(a, b, out);
  const Scope scope(a);
  check_launch("matmul_naive",
               matmul_naive(a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(),
                            a.size(0), b.size(1), a.size(1), a.stride(0), b.stride(0), b.stride(1),
                            dtype_of(a), threads, scope.stream));
}

void matmul_tiled_binding(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                          bool weight, int tile) {
  check_operands(a, b, out);
  const int64_t b_stride = row_stride(b, weight);
  const Scope scope(a);
  check_launch("matmul_tiled",
               matmul_tiled(a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(),
                            a.size(0), b.size(1), a.size(1), a.stride(0), b_stride, weight,
                            dtype_of(a), tile, scope.stream));
}

void matmul_wgmma_binding(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out,
                          bool weight, int tile_m, int tile_n, int stages, int cluster, int blocks,
                          bool bulk) {
  check_operands(a, b, out);
  const int64_t b_stride = row_stride(b, weight);
  TORCH_CHECK_VALUE(starts_on_16_bytes(a, a.stride(0)) && starts_on_16_bytes(b, b_stride) &&
                        (!bulk || starts_on_16_bytes(out, out.size(1))),
                    "the plan copies by TMA, but a row starts at no multiple of 16 bytes");
  TORCH_CHECK_VALUE(blocks > 0 && std::max({a.size(0), a.size(1), b.size(1)}) < int64_t{1} << 30,
                    "the plan counts in 32 bits, but a size is 2^30 or more");
  const Scope scope(a);
  check_hopper();
  check_launch("matmul_wgmma", matmul_wgmma(a.const_data_ptr(), b.const_data_ptr(),
                                            out.mutable_data_ptr(), a.size(0), b.size(1), a.size(1),
                                            a.stride(0), b_stride, weight, dtype_of(a), tile_m,
                                            tile_n, stages, cluster, blocks, bulk, scope.stream));
}

}  // namespace

void bind_matmul(pybind11::module_& module) {
  module.def("matmul_naive", &matmul_naive_binding);
  module.def("matmul_tiled", &matmul_tiled_binding);
  module.def("matmul_wgmma", &matmul_wgmma_binding);
}
