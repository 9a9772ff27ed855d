// matmul from CUTLASS: no kernel of ours, but what its user writes to have one.
//
// Tiles of 128 x 256 with 64 steps of k a stage, two blocks a cluster, as in matmul_wgmma.cuh.
// *Cooperative*: two warpgroups share a tile and hold 64 x 256 sums each, half of a warpgroup's
// registers. In CUTLASS's other schedule, pingpong, each would hold all of a tile of its own, which
// are more than there are.
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <type_traits>

#include "matmul_cutlass.h"

namespace {

using cutlass::layout::ColumnMajor;
using cutlass::layout::RowMajor;

// T: of a, b and out. kWeight: b is stored [n, k], which CUTLASS calls column-major.
template <typename T, bool kWeight>
struct Product {
  using Arch = cutlass::arch::Sm90;
  using Unit = cutlass::arch::OpClassTensorOp;
  using Tile = cute::Shape<cute::_128, cute::_256, cute::_64>;
  using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
  using Sum = float;
  static constexpr int kPack = 8;  // elements in 16 bytes, at whose multiples all rows start

  // No C, which would be added to the product and take shared memory from the stages.
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      Arch, Unit, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, Sum, Sum, void,
      RowMajor, kPack, T, RowMajor, kPack,
      cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
  // As many stages as the epilogue leaves room for.
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      Arch, Unit, T, RowMajor, kPack, T, std::conditional_t<kWeight, ColumnMajor, RowMajor>, kPack,
      Sum, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<sizeof(typename Epilogue::SharedStorage)>,
      cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
};

std::string failure(const char* step, cutlass::Status status) {
  return std::string(step) + ": " + cutlassGetStatusString(status);
}

template <typename T, bool kWeight>
std::string multiply(const void* a, const void* b, void* out, int m, int n, int k, int64_t a_stride,
                     int64_t b_stride, int swizzle, cudaStream_t stream) {
  using Kernel = typename Product<T, kWeight>::Kernel;
  using Gemm = typename Product<T, kWeight>::Gemm;
  // Of a matrix's rows, of its columns, of the matrices of a batch. CUTLASS's b is [n, k].
  const typename Kernel::StrideA a_strides{a_stride, cute::_1{}, 0};
  typename Kernel::StrideB b_strides{};
  cute::get<kWeight ? 0 : 1>(b_strides) = b_stride;
  const typename Kernel::StrideD out_strides{n, cute::_1{}, 0};

  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {static_cast<const T*>(a), a_strides, static_cast<const T*>(b), b_strides},
      {{}, nullptr, {}, static_cast<T*>(out), out_strides}};
  arguments.scheduler.max_swizzle_size = swizzle;

  // A thread's first such call also binds the device's context: `initialize` encodes the tensor
  // maps, which the driver's function does in no other, before it makes one.
  if (Gemm::maximum_active_blocks() < 1) return "maximum_active_blocks: no block fits the device";
  Gemm gemm;
  cutlass::Status status = gemm.can_implement(arguments);
  if (status != cutlass::Status::kSuccess) return failure("can_implement", status);
  // Only schedules that share out k ask for memory.
  if (Gemm::get_workspace_size(arguments) > 0) return "get_workspace_size: there is none to give";
  status = gemm.initialize(arguments, nullptr, stream);
  if (status != cutlass::Status::kSuccess) return failure("initialize", status);
  status = gemm.run(stream);
  if (status != cutlass::Status::kSuccess) return failure("run", status);
  return "";
}

}  // namespace

std::string matmul_cutlass(const void* a, const void* b, void* out, int m, int n, int k,
                           int64_t a_stride, int64_t b_stride, bool weight, DType dtype,
                           int swizzle, cudaStream_t stream) {
  if (dtype == DType::kFloat32) return "no instance is compiled for float32";
  const auto half = weight ? multiply<cutlass::half_t, true> : multiply<cutlass::half_t, false>;
  const auto bfloat16 =
      weight ? multiply<cutlass::bfloat16_t, true> : multiply<cutlass::bfloat16_t, false>;
  return (dtype == DType::kFloat16 ? half : bfloat16)(a, b, out, m, n, k, a_stride, b_stride,
                                                      swizzle, stream);
}
