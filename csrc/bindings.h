// What every binding does round its launcher: check, guard, stream, launch, check the launch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/utils/pybind.h>

#include <initializer_list>

#include "launch.h"

inline DType dtype_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    default:
      TORCH_CHECK_TYPE(false, "x must be float32, float16 or bfloat16, got ", x.scalar_type());
  }
}

// The operand that the others are compared with.
inline void check_first(const char* name, const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.is_cuda(), name, " must be on a CUDA device, got ", x.device());
  TORCH_CHECK_VALUE(x.dim() > 0, name, " must have one or more dimensions, got a 0-d tensor");
  TORCH_CHECK_VALUE(x.is_contiguous(), name, " must be contiguous, got strides ", x.strides());
  dtype_of(x);
}

inline void check_dimensions(const char* name, const at::Tensor& x, int64_t dimensions) {
  TORCH_CHECK_VALUE(x.dim() == dimensions, name, " must have ", dimensions,
                    " dimensions, got shape ", x.sizes());
}

inline void check_beside(const char* name, const at::Tensor& value, const at::Tensor& x,
                         at::IntArrayRef shape) {
  TORCH_CHECK_VALUE(value.sizes() == shape, name, " must have shape ", shape, ", got ",
                    value.sizes());
  TORCH_CHECK_VALUE(value.device() == x.device(), name, " must be on ", x.device(), ", got ",
                    value.device());
  TORCH_CHECK_TYPE(value.scalar_type() == x.scalar_type(), name, " must have dtype ",
                   x.scalar_type(), ", got ", value.scalar_type());
  TORCH_CHECK_VALUE(value.is_contiguous(), name, " must be contiguous, got strides ",
                    value.strides());
}

// A plan that moves 16 bytes at a time: a misaligned one would fault on the device.
inline void check_packs(std::initializer_list<const void*> starts, int64_t row_bytes) {
  for (const void* start : starts) {
    TORCH_CHECK_VALUE(reinterpret_cast<uintptr_t>(start) % 16 == 0,
                      "the plan moves 16-byte packs, but a tensor starts at an address that is no "
                      "multiple of 16");
  }
  TORCH_CHECK_VALUE(row_bytes % 16 == 0, "the plan moves 16-byte packs, but rows of ", row_bytes,
                    " bytes end within one");
}

inline void check_threads(int threads) {
  TORCH_CHECK_VALUE(0 < threads && threads <= 1024, "a block has 1 to 1024 threads, got ", threads);
}

inline void check_capability(const char* what, int major) {
  int device = 0, found = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&found, cudaDevAttrComputeCapabilityMajor, device));
  TORCH_CHECK_VALUE(found >= major, what, " need compute capability ", major, ".0, the device has ",
                    found, ".x");
}

// Exactly 9: the instructions are Hopper's own, and later architectures don't have them.
inline void check_hopper(const char* what) {
  int device = 0, major = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  TORCH_CHECK_VALUE(major == 9, what, " needs compute capability 9.0, the device has ", major,
                    ".x");
}

// The tensor's device is current while this lives, and `stream` is torch's current one on it:
// without it a kernel for cuda:1 would go to cuda:0, on a stream that nobody waits for.
struct Scope {
  explicit Scope(const at::Tensor& x)
      : guard(x.device()), stream(c10::cuda::getCurrentCUDAStream(x.device().index())) {}
  c10::cuda::CUDAGuard guard;
  cudaStream_t stream;
};

inline void check_launch(const char* launcher, cudaError_t status) {
  TORCH_CHECK_VALUE(status != kNoInstance, launcher,
                    " has no compiled instance for this plan; csrc/ lists those there are");
  C10_CUDA_CHECK(status);
}
