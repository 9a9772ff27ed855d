// tanh, sigmoid and exp2: what the special-function unit offers, and polynomials in its place.
#pragma once

#include "scalars.cuh"

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

// Absolute error below 2^-22, and of 0 it is -inf.
__device__ __forceinline__ float log2_approx(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

constexpr float kLog2e = 1.44269504f;

// scale * tanh(t) + shift for |t| <= 1 from multiply-adds alone. kCoefficients: of t, t^3, t^5,
// ..., with the least largest error. A constant scale costs nothing: the compiler multiplies it in.
template <int kCount>
__device__ __forceinline__ float odd_polynomial(const float (&coefficients)[kCount], float t,
                                                float scale, float shift) {
  const float square = t * t;
  float sum = scale * coefficients[kCount - 1];
#pragma unroll
  for (int k = kCount - 2; k >= 0; --k) sum = sum * square + scale * coefficients[k];
  return t * sum + shift;
}

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
  // sigmoid(2 x)
  __device__ static float sigmoid_of_twice(float x) {
    return reciprocal_approx(1.0f + exp2_approx(x * (-2.0f * kLog2e)));
  }
  // scale * tanh(t) + shift for |t| <= 1, error 2e-8 of scale before rounding
  __device__ static float tanh_small(float t, float scale, float shift) {
    constexpr float kCoefficients[] = {
        0.9999997019767761f,   -0.33332130312919617f,  0.13319583237171173f,  -0.05326583608984947f,
        0.019973281770944595f, -0.005951279774308205f, 0.0009637719485908747f};
    return odd_polynomial(kCoefficients, t, scale, shift);
  }
};

// 16-bit types: one result each, relative error 2^-11, which is half a rounding step of float16
// and a sixteenth of bfloat16's.
struct TanhApproxFunctions {
  __device__ static float tanh(float x) {
    float result;
    asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }
  // sigmoid(2 x)
  __device__ static float sigmoid_of_twice(float x) { return 0.5f * tanh(x) + 0.5f; }
  // scale * tanh(t) + shift for |t| <= 1, error 3.3e-5 of scale
  __device__ static float tanh_small(float t, float scale, float shift) {
    constexpr float kCoefficients[] = {0.999693751335144f, -0.3288919925689697f,
                                       0.11541378498077393f, -0.024654075503349304f};
    return odd_polynomial(kCoefficients, t, scale, shift);
  }
};

template <>
struct FastFunctions<__half> : TanhApproxFunctions {};

template <>
struct FastFunctions<__nv_bfloat16> : TanhApproxFunctions {};
