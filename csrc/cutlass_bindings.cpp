// The Python module cuda_impl._cutlass, apart from _C: it is built where CUTLASS's headers are, and
// for Hopper alone.
#include <ATen/ops/empty.h>

#include "matmul_checks.h"
#include "matmul_launchers.h"

namespace {

void matmul_cutlass_binding(const at::Tensor& a, const at::Tensor& b, bool weight,
                            const at::Tensor& out) {
  check_operands(a, b, weight, out);
  check_by_rows("b", b);
  check_rows_aligned("a", a, a.stride(0));
  check_rows_aligned("b", b, b.stride(0));
  check_rows_aligned("out", out, out.size(1));
  check_counted(out, a.size(1));
  const Scope scope(a);
  check_hopper("wgmma");
  // Freed when the kernel is under way: torch gives it to nobody before that on this stream.
  at::Tensor space;
  const auto workspace = [&](size_t bytes) -> void* {
    if (bytes == 0) return nullptr;
    space = at::empty({static_cast<int64_t>(bytes)}, a.options().dtype(at::kByte));
    return space.mutable_data_ptr();
  };
  const std::string failed = matmul_cutlass(
      a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(), static_cast<int>(out.size(0)),
      static_cast<int>(out.size(1)), static_cast<int>(a.size(1)), a.stride(0), b.stride(0), weight,
      dtype_of(a), workspace, scope.stream);
  TORCH_CHECK(failed.empty(), "matmul_cutlass, ", failed);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("matmul_cutlass", &matmul_cutlass_binding);
}
