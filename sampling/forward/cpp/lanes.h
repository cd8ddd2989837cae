// 16 numbers side by side, of float32 or bfloat16 in memory, and e^x of them: what our kernels in C++ share.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

constexpr int WIDTH = 16;

typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t Whole __attribute__((vector_size(64)));
typedef uint32_t Bits __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

struct bfloat16 {
  uint16_t bits;
};

inline Lanes load(const float* from) {
  Lanes found;
  std::memcpy(&found, from, sizeof found);
  return found;
}

inline Lanes load(const bfloat16* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  return reinterpret_cast<Lanes>(__builtin_convertvector(halves, Bits) << 16);
}

inline void store(float* to, Lanes lanes) { std::memcpy(to, &lanes, sizeof lanes); }

inline void store(bfloat16* to, Lanes lanes) {  // to the nearest, ties to even
  Bits bits = reinterpret_cast<Bits>(lanes);
  Halves halves = __builtin_convertvector((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, Halves);
  std::memcpy(to, &halves, sizeof halves);
}

inline Lanes larger(Lanes a, Lanes b) { return a > b ? a : b; }

inline Lanes power(Lanes x) {  // e^x for x <= 0, as Cephes computes it
  x = larger(x, Lanes{} - 87.0f);
  Lanes n = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f;
  Lanes r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Lanes p = Lanes{} + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  Whole exponent = (__builtin_convertvector(n, Whole) + 127) << 23;
  return p * reinterpret_cast<Lanes>(exponent);
}

inline float power(float x) { return power(Lanes{} + x)[0]; }

}  // namespace
