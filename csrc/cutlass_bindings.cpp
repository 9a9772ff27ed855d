// The Python module cuda_impl._cutlass, apart from _C: it is built where CUTLASS's headers are, and
// for Hopper alone.
#include <cutlass/version.h>

#include "matmul_checks.h"
#include "matmul_cutlass.h"

namespace {

// Refused here by name: of all these CUTLASS's can_implement says "Error Misaligned Operand".
void check_packed(const char* name, int64_t size) {
  TORCH_CHECK_VALUE(size % 8 == 0, "CUTLASS's kernel copies 16 bytes at a time, but ", name, " = ",
                    size, " is no multiple of 8");
}

void matmul_cutlass_binding(const at::Tensor& a, const at::Tensor& b, bool weight,
                            const at::Tensor& out, int swizzle) {
  check_operands(a, b, weight, out);
  TORCH_CHECK_TYPE(a.element_size() == 2, "a must be float16 or bfloat16, got ", a.scalar_type());
  check_by_rows("b", b);
  check_packed("K", a.size(1));
  check_packed("N", out.size(1));
  check_rows_aligned("a", a, a.stride(0));
  check_rows_aligned("b", b, b.stride(0));
  check_rows_aligned("out", out, out.size(1));
  check_counted(out, a.size(1));
  TORCH_CHECK_VALUE(swizzle == 1 || swizzle == 2 || swizzle == 4 || swizzle == 8,
                    "swizzle must be 1, 2, 4 or 8, got ", swizzle);
  const Scope scope(a);
  check_hopper("CUTLASS's kernel");
  const std::string failed = matmul_cutlass(
      a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(), static_cast<int>(out.size(0)),
      static_cast<int>(out.size(1)), static_cast<int>(a.size(1)), a.stride(0), b.stride(0), weight,
      dtype_of(a), swizzle, scope.stream);
  TORCH_CHECK(failed.empty(), "matmul_cutlass, ", failed);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("matmul_cutlass", &matmul_cutlass_binding);
  // Of the headers that it was built with, for the record.
  module.attr("version") = std::to_string(CUTLASS_MAJOR) + "." + std::to_string(CUTLASS_MINOR) +
                           "." + std::to_string(CUTLASS_PATCH);
}
