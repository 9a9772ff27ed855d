// tanh, sigmoid and exp2: the exact ones, and what the special-function unit offers.
#pragma once

#include "packs.cuh"

// Relative error below 2^-22; results under 2^-126 are 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ float reciprocal_approx(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

constexpr float kLog2e = 1.44269504f;

// CUDA's own functions, as a first draft calls them.
struct ExactFunctions {
  __device__ static float tanh(float x) { return tanhf(x); }
  __device__ static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
};

// The fewest special-function results that are accurate enough for T.
template <typename T>
struct FastFunctions;

// float: two results each (exp2, reciprocal), absolute error about 2e-7. Both forms go to their
// limits by themselves: exp2 of a large argument is inf, and its reciprocal 0.
template <>
struct FastFunctions<float> {
  __device__ static float tanh(float x) {
    return 1.0f - 2.0f * reciprocal_approx(1.0f + exp2_approx(x * (2.0f * kLog2e)));
  }
  __device__ static float sigmoid(float x) {
    return reciprocal_approx(1.0f + exp2_approx(x * -kLog2e));
  }
};

// 16-bit types: one result each, relative error 2^-11, which is half a rounding step of float16
// and an eighth of bfloat16's.
struct TanhApproxFunctions {
  __device__ static float tanh(float x) {
    float result;
    asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }
  __device__ static float sigmoid(float x) { return 0.5f * tanh(0.5f * x) + 0.5f; }
};

template <>
struct FastFunctions<__half> : TanhApproxFunctions {};

template <>
struct FastFunctions<__nv_bfloat16> : TanhApproxFunctions {};
