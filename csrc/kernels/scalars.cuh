// What every kernel here shares: conversions to and from float, max and min that keep NaN, blocks.
//
// Device code only, and no header that NVRTC can't open: nvcc and NVRTC compile the same text.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using int64 = long long;

// NVRTC has no <type_traits> and no <limits>.
template <typename A, typename B>
constexpr bool kSame = false;
template <typename A>
constexpr bool kSame<A, A> = true;

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// Round to nearest even. Named conversions, since torch's build hides the implicit ones.
template <typename T>
__device__ __forceinline__ T from_float(float value) {
  if constexpr (kSame<T, float>) {
    return value;
  } else if constexpr (kSame<T, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

// max and min that keep a NaN, as PyTorch's do; fmaxf and fminf drop it.
__device__ __forceinline__ float max_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ float min_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// value held within [-limit, limit]; a NaN stays one. From sm_86 on one instruction: the smaller
// magnitude, with the sign of value (limit's is +).
__device__ __forceinline__ float clamp_nan(float value, float limit) {
#if __CUDA_ARCH__ >= 860
  float result;
  asm("min.NaN.xorsign.abs.f32 %0, %1, %2;" : "=f"(result) : "f"(value), "f"(limit));
  return result;
#else
  return min_nan(max_nan(value, -limit), limit);
#endif
}

// Blocks are counted over x, then y: x alone ends at 2^31 - 1.
__device__ __forceinline__ int64 block_number() {
  return static_cast<int64>(blockIdx.y) * gridDim.x + blockIdx.x;
}
