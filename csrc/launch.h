// What every launcher shares: the dtype switch, the grid, the choice of a compiled instance.
//
// No torch header here or in any .cu: a source compiles in seconds, and a kernel edited alone
// rebuilds alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <set>
#include <tuple>
#include <type_traits>

// What a launcher returns for template arguments that no compiled instance has. The CUDA runtime
// itself stopped returning this value long ago.
constexpr cudaError_t kNoInstance = cudaErrorNotYetImplemented;

enum class DType { kFloat32, kFloat16, kBFloat16 };

template <typename T>
struct TypeTag {
  using Type = T;
};

// Calls launch(TypeTag<T>{}) for the T of `dtype`, for instance
//   return with_dtype(dtype, [&](auto tag) { using T = typename decltype(tag)::Type; ... });
template <typename Launch>
cudaError_t with_dtype(DType dtype, Launch launch) {
  switch (dtype) {
    case DType::kFloat32:
      return launch(TypeTag<float>{});
    case DType::kFloat16:
      return launch(TypeTag<__half>{});
    case DType::kBFloat16:
      return launch(TypeTag<__nv_bfloat16>{});
  }
  return kNoInstance;
}

// Calls launch(std::integral_constant<int, c>{}) for the c of kChoices that equals `value`, so that
// an argument becomes a template argument. None equals it: kNoInstance.
template <int... kChoices, typename Launch>
cudaError_t with_one_of(int value, Launch launch) {
  cudaError_t status = kNoInstance;
  ((value == kChoices && (status = launch(std::integral_constant<int, kChoices>{}), true)) || ...);
  return status;
}

// The same for a bool.
template <typename Launch>
cudaError_t with_bool(bool value, Launch launch) {
  return value ? launch(std::true_type{}) : launch(std::false_type{});
}

// Gives a kernel an attribute on the current device, which keeps it: asked for at every launch,
// once a thread. value: the same at every call for this kernel
template <typename Kernel>
cudaError_t set_once(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  // The types of two kernels can be the same, so that their addresses tell them apart.
  const auto key = std::make_tuple(device, reinterpret_cast<const void*>(kernel), attribute);
  thread_local std::set<std::tuple<int, const void*, cudaFuncAttribute>> done;
  if (done.count(key) == 0) {
    status = cudaFuncSetAttribute(kernel, attribute, value);
    if (status == cudaSuccess) done.insert(key);
  }
  return status;
}

// As much of an SM's memory as can be for L1. A kernel without a wish finds the split that the last
// one left, after a matrix product nearly all for shared memory. On an H200, with that split and
// with this one: chain at 2^24 bfloat16 27.0 and 25.9 us, softmax of 64 rows of 128256 15.8 and
// 13.1 us; at 16384 columns with a tenth or more for shared memory 273 us, with this one 257.
template <typename Kernel>
cudaError_t prefer_l1(Kernel* kernel) {
  return set_once(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                  cudaSharedmemCarveoutMaxL1);
}

// A grid of at least `blocks` blocks, counted by `block_number()` in csrc/kernels/packs.cuh.
// One dimension as far as it goes, then rows of 2^30.
inline dim3 grid_of(int64_t blocks) {
  constexpr int64_t kWidth = int64_t{1} << 30;
  if (blocks < kWidth) return dim3(static_cast<unsigned>(blocks));
  return dim3(kWidth, static_cast<unsigned>((blocks + kWidth - 1) / kWidth));
}
